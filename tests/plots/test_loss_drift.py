from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from numdrift.plots.appearance import titled_figure
from numdrift.plots.curve import Curve
from numdrift.plots.loss_drift import curve_drifts, draw_loss_drift, legend_entries, loss_drift

CPU = [4.0, 3.0, 2.0, 1.0]


def pair(losses: Sequence[float | None], *, status: str = "complete", cpu: Sequence[float | None] = CPU) -> list[Curve]:
    return [
        Curve("cpu", range(len(cpu)), cpu),
        Curve("compile", range(len(losses)), losses, status, reference="cpu"),
    ]


def line_data(curves: list[Curve], *, relative: bool = False) -> list[tuple[list[float], list[float]]]:
    _, (axes,) = titled_figure("drift", [1])
    draw_loss_drift(axes, curves, relative=relative)
    return [(np.asarray(x).tolist(), np.asarray(y).tolist()) for x, y in (line.get_data() for line in axes.lines)]


@pytest.mark.parametrize(
    ("losses", "status", "text"),
    [
        (CPU, "complete", "compile: identical to cpu"),
        (CPU[:2], "crashed", "compile (crashed after step 1): identical to cpu"),
        (CPU[:2], "complete", "compile: identical to cpu in 2 common steps"),
        ([4.0, 3.0, 2.5, 1.25], "complete", "compile: drifts from step 2 on, max 5.0e-01"),
        (
            [4.0, 3.5, math.nan, math.nan],
            "nonfinite",
            "compile: drifts from step 1 on, max 5.0e-01 where finite, non-finite from step 2",
        ),
        ([4.0, 3.0, math.nan, math.nan], "complete", "compile: drifts from step 2 on, max inf, non-finite from step 2"),
        ([], "crashed", "compile (crashed before its first loss): no step in common with cpu"),
    ],
)
def test_the_legend_says_where_and_how_far(losses: list[float], status: str, text: str) -> None:
    texts = [entry for _, entry in legend_entries(pair(losses, status=status))]
    assert texts == ["cpu: reference", text]


def test_drift_rows_hold_the_common_steps() -> None:
    reference, drift = curve_drifts(pair([4.0, None, 3.0]))
    assert reference is None
    assert drift is not None
    assert drift.steps.tolist() == [0, 2]
    assert drift.absolute.tolist() == [0.0, 1.0]
    assert drift.relative.tolist() == [0.0, 0.5]
    assert drift.first_differing_step == 2


def test_a_curve_without_reference_is_named_only() -> None:
    assert [text for _, text in legend_entries([Curve("cpu", [0], [1.0])])] == ["cpu"]


def test_steps_without_drift_are_gaps_and_lonely_points_are_marked() -> None:
    (x, y), (lonely_x, lonely_y) = line_data(pair([4.5, 3.0, 2.25, 1.5]))
    assert x == [0, 1, 2, 3]
    assert y[0] == 0.5 and math.isnan(y[1]) and y[2:] == [0.25, 0.5]
    assert (lonely_x, lonely_y) == ([0], [0.5])


def test_relative_drift_is_divided_by_the_reference() -> None:
    ((_, y),) = line_data(pair([5.0, 4.0, 3.0, 2.0]), relative=True)
    assert y == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1.0])


def test_an_infinite_drift_is_a_gap() -> None:
    ((_, y),) = line_data(pair([4.5, 3.5, math.nan, math.inf]))
    assert y[:2] == [0.5, 0.5] and all(map(math.isnan, y[2:]))


def test_the_range_ends_beside_powers_of_ten_and_the_axis_is_logarithmic() -> None:
    _, (axes,) = titled_figure("drift", [1])
    draw_loss_drift(axes, pair([4.0 + 2e-9, 3.0, 2.0 + 3e-4, 1.0]))
    low, high = axes.get_ylim()
    assert axes.get_yscale() == "log"
    assert 1e-10 < low < 1e-9 and 1e-3 < high < 1e-2


def test_nothing_to_draw_is_said() -> None:
    _, (axes,) = titled_figure("drift", [1])
    draw_loss_drift(axes, pair(CPU))
    assert len(axes.lines) == 0
    assert [text.get_text() for text in axes.texts] == ["no drift to draw"]
    assert axes.get_yticks().tolist() == []


def test_the_figure_has_absolute_and_relative_drift() -> None:
    figure = loss_drift(pair([4.5, 3.5, 2.5, 1.5]), title="drift")
    above, below = figure.axes
    assert above.get_ylabel() == "|loss - reference|"
    assert below.get_ylabel() == "|loss - reference| / |reference|"
    assert (above.get_xlabel(), below.get_xlabel()) == ("", "step")
    assert np.asarray(above.lines[0].get_ydata()).tolist() == [0.5] * 4
    assert np.asarray(below.lines[0].get_ydata()).tolist() == pytest.approx([1 / 8, 1 / 6, 1 / 4, 1 / 2])
