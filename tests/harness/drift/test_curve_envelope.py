from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.curve_envelope import CHAOS, FACTOR, Envelope, loss_envelope
from numdrift.harness.drift.loss_distance import LossSeries

U = 2.0**-24
Losses = Sequence[float | None]


def series(losses: Losses) -> LossSeries:
    return LossSeries(range(len(losses)), losses)


def envelope(a: Losses, b: Losses, *perturbed: Losses, dtype: str = "float32") -> Envelope:
    return loss_envelope(series(a), series(b), [series(one) for one in perturbed], dtype=dtype)


def test_the_envelope_is_the_widest_deviation_so_far() -> None:
    # given two perturbed runs, one wider at step 1, the other at step 3
    found = envelope(
        [1.0] * 5,
        [1.0, 1.0 + 4e-4, 1.0, 1.0 - 1.5e-3, 1.0],
        [1.0, 1.0 + 2e-4, 1.0, 1.0, 1.0],
        [1.0, 1.0 - 1e-4, 1.0, 1.0 + 1e-3, 1.0],
    )
    # then
    assert found.envelope == pytest.approx([2 * U, 2e-4, 2e-4, 1e-3, 1e-3])
    assert found.ratio == pytest.approx([0, 2, 0, 1.5, 0])
    assert (found.onset, found.horizon, found.worst_step, found.members) == (None, None, 1, 2)
    assert found.worst_ratio == pytest.approx(2)


def test_a_run_beyond_three_times_leaves_it_and_the_first_such_step_is_the_onset() -> None:
    found = envelope([1.0] * 4, [1.0, 1.00029, 1.00051, 1.002], [1.0, 1.0001, 1.0, 1.0])
    assert (found.onset, found.worst_step) == (2, 3)
    assert found.words("compile").startswith(
        "compile leaves the envelope at step 2: its deviation is 5.1 times the envelope (20 times at step 3)"
    )


def test_early_deviations_do_not_hide_late_ones_of_a_falling_loss() -> None:
    # given a loss that falls to a hundredth, perturbed runs that move it by 1e-5 at first and 1e-6 later
    losses = [1.0, 0.1, 0.01]
    found = envelope(losses, [1.0, 0.1, 0.01 * (1 + 5e-5)], *[[1.0 + 1e-5, 0.1 + 1e-7, 0.01 + 1e-8]] * 8)
    # then the run's 5e-5 stands out, though as a number it is below the first deviation
    assert found.envelope == pytest.approx([1e-5, 1e-6, 1e-7])
    assert found.onset == 2
    assert found.worst_ratio == pytest.approx(5)


@pytest.mark.parametrize(("dtype", "u"), [("float32", 2.0**-24), ("float64", 2.0**-53), ("bfloat16", 2.0**-8)])
def test_rounding_of_the_loss_itself_is_the_floor(dtype: str, u: float) -> None:
    # given perturbed runs that do not move at all, and a run beside the reference by 2 and by 7 roundoffs
    losses = [4.0, 4.0]
    found = envelope(losses, [4.0 - 4.0 * 2 * u, 4.0 - 4.0 * 7 * u], losses, dtype=dtype)
    assert found.envelope.tolist() == [8 * u, 8 * u]
    assert found.ratio.tolist() == [1.0, 3.5]
    assert (found.onset, found.horizon) == (1, None)  # 2 u is below the chaos even for bfloat16


def test_a_run_that_left_before_the_horizon_is_distinguished() -> None:
    found = envelope([1.0] * 3, [1.0, 1.1, 1.1], *[[1.0, 1.001, 1.02]] * 8)
    assert found.words("lazy") == (
        "lazy leaves the envelope at step 1: its deviation is 100 times the envelope; "
        "from step 2 on, a one-ULP change alone moves the loss by more than 1 %, so these steps are not judged"
    )


def test_from_the_horizon_on_nothing_is_judged() -> None:
    # given a script in which one ULP grows to 2 % of the loss, and a run that is far off only from then on
    found = envelope([1.0] * 4, [1.0, 1.0, 5.0, 9.0], [1.0, 1.0 + 3e-5, 1.02, 1.0])
    # then
    assert (found.onset, found.horizon, found.worst_ratio) == (None, 2, 0)
    assert found.judged.tolist() == [0, 1]
    assert found.words("compile") == (
        "up to step 1, a one-ULP change of the initial parameters moves the loss by at most 3e-05 of its value; "
        "compile stays inside this envelope; after step 1, this script cannot distinguish compile from a one-ULP "
        "change; the envelope comes from only 1 perturbed run (the default is 8)"
    )


def test_chaos_from_the_start_is_said() -> None:
    found = envelope([1.0] * 2, [2.0] * 2, *[[1.1, 1.0]] * 8)
    assert (found.onset, found.horizon, found.worst_ratio) == (None, 0, None)
    assert found.words("lazy") == "from the first step on, this script cannot distinguish lazy from a one-ULP change"


def test_a_loss_that_only_the_run_has_non_finite_is_outside() -> None:
    found = envelope([1.0, 0.5, 0.25], [1.0, math.nan, math.inf], *[[1.0, 0.5, 0.25]] * 8)
    assert (found.onset, found.worst_ratio) == (1, math.inf)
    assert found.words("lazy") == "lazy leaves the envelope at step 1: its loss is nan, the reference's 0.5"


@pytest.mark.parametrize("end", [math.nan, math.inf, -math.inf])
def test_equal_non_finite_losses_are_inside_and_a_finite_one_beside_them_is_not(end: float) -> None:
    together = envelope([1.0, end, end], [1.0, end, end], [1.0, end, end])
    assert (together.onset, together.horizon) == (None, None)
    alone = envelope([1.0, end, end], [1.0, end, 0.5], [1.0, end, end])
    assert alone.onset == 2


def test_perturbed_runs_that_become_non_finite_end_what_is_judged() -> None:
    found = envelope([1.0, 1.0, 1.0], [1.0, 1.0, math.nan], [1.0, 1.0, math.nan])
    assert (found.onset, found.horizon) == (None, 2)


def test_zero_losses_are_measured_by_the_last_one_that_is_not_zero() -> None:
    # given a loss that reaches exactly zero
    found = envelope([0.5, 0.0, 0.0], [0.5, 2.0**-26, 1e-3], [0.5, 0.0, 0.0])
    assert found.envelope.tolist() == [U, U, U]
    assert found.ratio[:2].tolist() == [0.0, 0.25]
    assert (found.onset, found.horizon) == (2, None)


def test_losses_that_are_all_zero_have_no_scale() -> None:
    assert envelope([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]).worst_ratio == 0
    assert envelope([0.0, 0.0], [0.0, 1e-30], [0.0, 0.0]).onset == 1
    assert envelope([0.0, 0.0], [0.0, 1e-30], [0.0, 1e-30]).horizon == 1


def test_missing_losses_and_different_lengths() -> None:
    # given a reference of 6 steps, a run of 4 without step 1, perturbed runs of 1 and of 3 steps
    found = envelope([1.0] * 6, [1.0, None, 1.0, 7.0], [1.0 + 1e-5], [1.0, 1.0 + 1e-4, None, None])
    # then it is judged up to the end of the longest perturbed run
    assert found.steps.tolist() == [0, 2, 3]
    assert found.envelope[:1] == pytest.approx([1e-5])
    assert np.isnan(found.envelope[1:]).all()
    assert found.judged.tolist() == [0]
    assert found.onset is None
    assert "later steps are not judged: the perturbed runs end at step 0" in found.words("compile")


def test_nothing_in_common_is_said() -> None:
    assert envelope([1.0], [None], [1.0]).words("lazy") == ("no step has a loss in both lazy and its reference")
    empty = envelope([1.0], [1.0], [])
    assert empty.worst_ratio is None
    assert "no perturbed run has a loss at a step of lazy" in empty.words("lazy")


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one perturbed run"):
        envelope([1.0], [1.0])
    with pytest.raises(ValueError, match="int8"):
        envelope([1.0], [1.0], [1.0], dtype="int8")
    with pytest.raises(ValueError, match="increase strictly"):
        LossSeries([1, 1], [0.5, 0.5])


def test_an_envelope_returns_from_json() -> None:
    # given one with an infinite ratio, a NaN and an unknown end
    found = envelope([1.0, 0.5, 0.25, 0.2], [1.0, 0.6, math.nan, 0.2], [1.0, 0.5, 0.25])
    # when it goes through text, and the NaN as a text too
    data = json.loads(json.dumps(found.to_json()).replace("NaN", '"nan"'))
    again = Envelope.from_json(data)
    # then
    for name in ("steps", "reference", "run", "envelope", "ratio"):
        assert np.array_equal(getattr(again, name), getattr(found, name), equal_nan=True), name
    assert again.words("b") == found.words("b")
    assert (again.onset, again.worst_ratio, again.worst_step) == (1, math.inf, 2)


@pytest.mark.parametrize(
    "change", [{"run": [1.0]}, {"steps": [1, 0]}, {"run": ["x", 1.0]}, {"envelope": 3}, {"onset": "soon"}]
)
def test_a_damaged_json_is_refused(change: dict[str, object]) -> None:
    data = envelope([1.0, 1.0], [1.0, 1.0], [1.0, 1.0]).to_json()
    with pytest.raises((TypeError, ValueError)):
        Envelope.from_json(data | change)


losses = st.lists(st.one_of(st.none(), st.floats(width=32, allow_nan=True)), max_size=12)


@given(a=losses, b=losses, perturbed=st.lists(losses, min_size=1, max_size=4))
def test_whatever_the_losses_are(a: Losses, b: Losses, perturbed: list[Losses]) -> None:
    found = envelope(a, b, *perturbed)
    known = found.envelope[~np.isnan(found.envelope)]
    # the envelope is never negative, and onset and horizon are where their definitions say
    assert (known >= 0).all()
    before = found.ratio[np.isin(found.steps, found.judged)]
    assert (found.onset is None) == (not (before > FACTOR).any())
    assert found.worst_ratio == (before.max() if before.size else None)
    if found.horizon is not None:
        assert (found.judged < found.horizon).all()
        assert found.relative[found.steps == found.horizon] > CHAOS
    assert found.words("b")


@given(a=losses, perturbed=st.lists(losses, min_size=1, max_size=4), which=st.integers(0, 3))
def test_a_perturbed_run_never_leaves_its_own_envelope(a: Losses, perturbed: list[Losses], which: int) -> None:
    found = envelope(a, perturbed[which % len(perturbed)], *perturbed)
    assert found.onset is None
    assert found.worst_ratio is None or found.worst_ratio <= 1
