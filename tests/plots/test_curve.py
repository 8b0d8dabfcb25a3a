from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.plots.curve import Curve, resolved, thinned


def test_steps_without_loss_are_left_out() -> None:
    steps, losses = Curve("cpu", [0, 1, 5], [1.0, None, 2.0]).recorded()
    assert (steps.tolist(), losses.tolist()) == ([0, 5], [1.0, 2.0])


@pytest.mark.parametrize(
    ("label", "steps", "losses", "reference", "message"),
    [
        (" ", [0], [1.0], None, "needs a label"),
        ("cpu", [0], [1.0], "cpu", "own reference"),
        ("cpu", [0, 1], [1.0], None, "'cpu': 2 steps and 1 losses"),
        ("cpu", [1, 0], [1.0, 1.0], None, "'cpu': steps must increase strictly: 0 follows 1"),
    ],
)
def test_an_invalid_curve_is_refused(
    label: str, steps: list[int], losses: list[float], reference: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Curve(label, steps, losses, reference=reference)


@pytest.mark.parametrize(
    ("curve", "title", "non_finite"),
    [
        (Curve("lazy", [0, 1], [1.0, 2.0]), "lazy", ""),
        (Curve("lazy", [0, 7], [1.0, 2.0], "crashed"), "lazy (crashed after step 7)", ""),
        (Curve("lazy", [], [], "crashed"), "lazy (crashed before its first loss)", ""),
        (Curve("lazy", [0], [None]), "lazy (no losses)", ""),
        (Curve("lazy", [0, 1, 2], [1.0, math.nan, math.inf], "nonfinite"), "lazy", "non-finite from step 1"),
        (Curve("lazy", [0, 1], [1.0, 2.0], "nonfinite"), "lazy (nonfinite after step 1)", ""),
        (Curve("lazy", [0, 1, 2], [1.0, math.inf, 2.0]), "lazy", "non-finite at step 1"),
        (
            Curve("lazy", [0, 1, 2, 3], [1.0, math.inf, 2.0, math.nan]),
            "lazy",
            "non-finite at step 1 and 1 later",
        ),
    ],
)
def test_titles_say_what_went_wrong(curve: Curve, title: str, non_finite: str) -> None:
    assert (curve.titled(), curve.non_finite()) == (title, non_finite)


def test_the_given_reference_is_that_of_curves_without_one() -> None:
    curves = [
        Curve(label, [0], [1.0], reference=reference) for label, reference in (("a", None), ("b", "c"), ("c", None))
    ]
    assert [curve.reference for curve in resolved(curves, "a")] == [None, "c", "a"]
    assert [curve.reference for curve in resolved(curves)] == [None, "c", None]


def test_curves_that_cannot_be_drawn_together_are_refused() -> None:
    cpu = Curve("cpu", [0], [1.0])
    with pytest.raises(ValueError, match="nothing to draw"):
        resolved([])
    with pytest.raises(ValueError, match="nothing to draw"):
        resolved([Curve("cpu", [], []), Curve("lazy", [0], [None])])
    with pytest.raises(ValueError, match="occur twice: cpu"):
        resolved([cpu, cpu])
    with pytest.raises(ValueError, match="no curve is called eager; the curves are cpu"):
        resolved([cpu], "eager")


@given(st.integers(0, 2**32 - 1), st.integers(0, 20_000), st.floats(0, 1))
def test_thinning_keeps_extremes_ends_and_gaps(seed: int, size: int, gaps: float) -> None:
    generator = np.random.default_rng(seed)
    values = generator.normal(size=size)
    values[generator.random(size) < gaps] = np.nan
    kept = thinned(values)
    assert len(kept) <= min(size, 3002)
    assert (np.diff(kept) > 0).all()
    if size:
        assert (kept[0], kept[-1]) == (0, size - 1)
        assert np.isnan(values).any() == np.isnan(values[kept]).any()
    if not np.isnan(values).all():
        assert np.nanmax(values) == np.nanmax(values[kept])
        assert np.nanmin(values) == np.nanmin(values[kept])
