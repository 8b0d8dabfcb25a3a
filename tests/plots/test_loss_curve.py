from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.text import Text
from matplotlib.transforms import BboxBase

from numdrift.plots.appearance import save
from numdrift.plots.curve import Curve
from numdrift.plots.loss_curve import loss_curve

from .combinations import combinations_of


def decaying(steps: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    noise = 0.03 * np.random.default_rng(seed).normal(size=steps)
    return 2.3 * np.exp(-3 * np.arange(steps) / steps) + 0.3 + noise


def three_modes(steps: int, low: float = -9, high: float = -3) -> list[Curve]:
    cpu = decaying(steps)
    drift = 10 ** np.linspace(low, high, steps) * np.random.default_rng(1).normal(size=steps)
    return [
        Curve("cpu", range(steps), cpu.tolist()),
        Curve("compile", range(steps), (cpu + drift).tolist()),
        Curve("lazy", range(steps), cpu.tolist()),
    ]


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def box(artist: Axes | Legend | Text) -> BboxBase:
    found = artist.get_tightbbox()
    assert found is not None
    return found


def collisions(figure: Figure) -> list[tuple[str, str]]:
    """Draw the figure and return the panels and texts that overlap each other or stick out."""
    figure.canvas.draw()
    blocks = {f"panel {number}": box(axes) for number, axes in enumerate(figure.axes)}
    blocks |= {"legend": box(figure.legends[0]), "title": box(figure.texts[0])}
    texts: dict[str, BboxBase] = {}
    for number, axes in enumerate(figure.axes):
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            shown = [axis.label, *(tick.label1 for tick in ticks if tick.label1.get_visible())]
            texts |= {f"{number} {t.get_text()} {id(t)}": t.get_window_extent() for t in shown if t.get_text()}
    outside = [(name, "figure") for name, b in blocks.items() if b.x0 < 0 or b.x1 > figure.bbox.x1]
    overlaps = [
        (a, b) for boxes in (blocks, texts) for (a, x), (b, y) in combinations(boxes.items(), 2) if x.overlaps(y)
    ]
    return outside + overlaps


def test_losses_above_and_drift_below() -> None:
    curves = three_modes(200)
    figure = loss_curve(curves, title="three modes", reference="cpu")
    above, below = figure.axes
    assert [np.asarray(line.get_ydata()).tolist() for line in above.lines] == [list(c.losses) for c in curves]
    assert above.get_yscale() == "linear"
    assert below.get_yscale() == "log"
    assert len(below.lines) == 1
    assert below.lines[0].get_color() == above.lines[1].get_color()
    compile_text = legend_texts(figure)[1]
    assert compile_text.startswith("compile: drifts from step 0 on, max ")
    assert legend_texts(figure)[::2] == ["cpu: reference", "lazy: identical to cpu"]


@pytest.mark.parametrize(
    ("steps", "powers"),
    combinations_of(
        [1, 40, 20_000],
        [(-9, -3), (-8, -7.9), (-300, -12)],
        everyday=[(1, (-9, -3)), (40, (-8, -7.9)), (40, (-300, -12)), (20_000, (-9, -3))],
    ),
)
def test_nothing_collides(steps: int, powers: tuple[float, float]) -> None:
    low, high = powers
    assert collisions(loss_curve(three_modes(steps, low, high), title="t " * 120, reference="cpu")) == []


def test_nothing_collides_with_nine_curves_of_long_names() -> None:
    curves = [
        Curve(f"{batch}: {mode} {'long ' * 20}", range(50), decaying(50, seed).tolist())
        for seed, batch in enumerate("ABC")
        for mode in ("cpu", "compile", "lazy")
    ]
    figure = loss_curve(curves, title="three batches", reference=curves[0].label)
    assert collisions(figure) == []


def test_each_batch_is_held_against_its_own_reference() -> None:
    curves = [
        Curve(f"{batch}: {mode}", range(3), [k + d for k in (3.0, 2.0, 1.0)], reference=reference)
        for batch, mode, d, reference in [
            ("A", "cpu", 0.0, None),
            ("A", "lazy", 0.0, "A: cpu"),
            ("B", "cpu", 1.0, None),
            ("B", "lazy", 1.5, "B: cpu"),
        ]
    ]
    figure = loss_curve(curves, title="two batches")
    assert legend_texts(figure) == [
        "A: cpu: reference",
        "A: lazy: identical to A: cpu",
        "B: cpu: reference",
        "B: lazy: drifts from step 0 on, max 5.0e-01",
    ]


def test_thousands_of_steps_are_thinned_but_a_peak_stays() -> None:
    losses = decaying(20_000)
    losses[7777] = 9.0
    figure = loss_curve([Curve("cpu", range(20_000), losses.tolist())], title="peak")
    (line,) = figure.axes[0].lines
    assert len(np.asarray(line.get_xdata())) <= 3002
    assert np.asarray(line.get_ydata()).max() == 9.0


@pytest.mark.parametrize(
    ("losses", "scale"),
    [([1.0, 0.02], "linear"), ([1.0, 0.009], "log"), ([100.0, -1.0], "linear"), ([100.0, 0.0], "linear")],
)
def test_the_loss_axis_is_logarithmic_beyond_two_decades_of_positive_losses(losses: list[float], scale: str) -> None:
    assert loss_curve([Curve("cpu", [0, 1], losses)], title="scale").axes[0].get_yscale() == scale


def test_a_curve_that_stops_being_finite_ends_with_an_x() -> None:
    curves = [Curve("cpu", range(4), [4.0, 3.0, math.nan, math.inf], "nonfinite")]
    figure = loss_curve(curves, title="nan")
    line, mark = figure.axes[0].lines
    assert np.isnan(np.asarray(line.get_ydata())).tolist() == [False, False, True, True]
    assert mark.get_marker() == "x"
    assert (mark.get_xdata(), mark.get_ydata()) == ([2], [3.0])
    assert legend_texts(figure) == ["cpu: non-finite from step 2"]


def test_a_curve_that_is_never_finite_has_its_x_inside_the_panel() -> None:
    figure = loss_curve([Curve("cpu", range(3), [math.nan] * 3)], title="nan")
    figure.canvas.draw()
    axes = figure.axes[0]
    mark = axes.lines[1].get_window_extent()
    assert axes.bbox.y0 < mark.y0 and mark.y1 < axes.bbox.y1 + 10
    assert collisions(figure) == []


def test_a_crashed_run_of_other_length_is_drawn_and_named() -> None:
    curves = [
        Curve("cpu", range(9), decaying(9).tolist()),
        Curve("lazy", range(8), decaying(9)[:8].tolist(), "crashed"),
    ]
    figure = loss_curve(curves, title="crash", reference="cpu")
    assert legend_texts(figure) == ["cpu: reference", "lazy (crashed after step 7): identical to cpu"]


def test_a_run_without_losses_is_named_beside_the_others() -> None:
    curves = [*three_modes(9), Curve("xla", [], [], "crashed")]
    figure = loss_curve(curves, title="crash", reference="cpu")
    assert legend_texts(figure)[3] == "xla (crashed before its first loss): no step in common with cpu"
    assert collisions(figure) == []


def test_one_step_is_marked_and_one_curve_needs_no_drift_panel() -> None:
    figure = loss_curve([Curve("cpu", [0], [2.0])], title="one")
    (axes,) = figure.axes
    assert axes.lines[0].get_marker() == "o"
    assert axes.get_xlabel() == "step"


def test_identical_curves_leave_the_drift_panel_empty() -> None:
    cpu, _, lazy = three_modes(9)
    figure = loss_curve([cpu, lazy], title="identical", reference="cpu")
    assert [text.get_text() for text in figure.axes[1].texts] == ["no drift to draw"]


def test_nothing_at_all_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        loss_curve([Curve("cpu", [], [])], title="empty")


def test_equal_curves_are_saved_as_equal_bytes(tmp_path: Path) -> None:
    first, second = (
        save(loss_curve(three_modes(300), title="same", reference="cpu"), tmp_path / name) for name in ("a", "b")
    )
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
