from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from numdrift.harness.drift.curve_envelope import Envelope, loss_envelope
from numdrift.harness.drift.loss_distance import LossSeries
from numdrift.plots.appearance import save
from numdrift.plots.envelope import envelope

Losses = Sequence[float | None]


def series(losses: Losses) -> LossSeries:
    return LossSeries(range(len(losses)), losses)


def found(a: Losses, b: Losses, *perturbed: Losses) -> Envelope:
    return loss_envelope(series(a), series(b), [series(one) for one in perturbed])


LEAVES = found([1.0, 0.8, 0.6, 0.5], [1.0, 0.8, 0.601, 0.5], *[[1.0, 0.8001, 0.6, 0.51]] * 8)
"""Leaves at step 2, where the envelope is 1e-4; horizon at step 3."""


def drawn(of: Envelope, name: str = "compile") -> Figure:
    figure = envelope(of, reference="cpu", run=name, title="train.py")
    figure.canvas.draw()
    return figure


def curves(axes: Axes) -> list[tuple[list[float], list[float]]]:
    """The lines that are not marks: those with as many points as there are steps."""
    data = [line.get_data() for line in axes.lines]
    return [(np.asarray(x, float).tolist(), np.asarray(y, float).tolist()) for x, y in data if np.size(x) == 4]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_losses_difference_and_ratio_stand_below_each_other() -> None:
    losses, difference, ratio = drawn(LEAVES).axes
    assert curves(losses) == [([0, 1, 2, 3], [1.0, 0.8, 0.6, 0.5]), ([0, 1, 2, 3], [1.0, 0.8, 0.601, 0.5])]
    ((_, apart),) = curves(difference)
    assert apart[2] == pytest.approx(0.001 / 0.6) and np.isnan([apart[0], apart[1], apart[3]]).all()
    ((_, times),) = curves(ratio)
    assert times[2] == pytest.approx(40 / 3, rel=1e-3)
    assert [axes.get_yscale() for axes in (losses, difference, ratio)] == ["log"] * 3


def test_onset_horizon_and_thresholds_are_marked() -> None:
    figure = drawn(LEAVES)
    said = texts(figure)
    assert "leaves the envelope at step 2" in said and "not judged from step 3 on" in said
    for axes in figure.axes:
        assert any(np.asarray(line.get_xdata()).tolist() == [2, 2] for line in axes.lines)
    levels = [np.asarray(axes.lines[-2].get_ydata()).tolist() for axes in figure.axes[1:]]
    assert levels == [[0.01, 0.01], [3.0, 3.0]]


def test_what_stays_inside_has_no_marks() -> None:
    said = texts(drawn(found([1.0, 0.5], [1.0, 0.5], *[[1.0, 0.5]] * 8)))
    assert not any("leaves" in text or "not judged" in text for text in said)


def test_the_legend_says_what_the_envelope_says() -> None:
    legend = drawn(LEAVES, "x^2=$compile$").legends[0]
    reference, run = (text.get_text().replace("\n  ", " ") for text in legend.get_texts())
    assert reference == "cpu: reference"
    assert run == f"x^2=$compile$: {LEAVES.words('it').removeprefix('it ')}"
    assert run.startswith(
        "x^2=$compile$: leaves the envelope at step 2: its deviation is 13.3 times the envelope; from step 3 on"
    )


def test_infinite_ratios_are_crosses() -> None:
    figure = drawn(found([1.0, 0.8, 0.6, 0.5], [1.0, 0.8, math.nan, math.inf], *[[1.0, 0.8, 0.6, 0.5]] * 8))
    crosses = [line for line in figure.axes[2].lines if line.get_marker() == "x"]
    assert [np.asarray(cross.get_xdata()).tolist() for cross in crosses] == [[2, 3]]


@pytest.mark.parametrize(
    "of",
    [
        LEAVES,
        found([], [], []),
        found([1.0], [1.0], [1.0]),
        found([math.nan] * 3, [math.inf] * 3, [1.0] * 3),
        found([1.0, 0.0, -2.0], [1.0, 0.1, -2.0], [1.0, 0.0, -1.9]),
        found([0.0] * 3, [0.0] * 3, [0.0] * 3),
        found([1e-300] * 3, [1e300] * 3, [1e-300] * 3),
        found([1.0] * 3, [1.0] * 3, [1.0]),
        found(
            [0.999**t for t in range(20000)],
            [0.999**t + 1e-4 * (t == 7777) for t in range(20000)],
            [0.999**t for t in range(20000)],
        ),
    ],
    ids=["leaves", "empty", "one step", "non-finite", "negative", "zero", "extreme", "unknown", "long"],
)
def test_nothing_collides(of: Envelope) -> None:
    figure = drawn(of, "a mode with quite a long name,kernel.tanh_backward=mac,threads=2")
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.axison]
    boxes.append(figure.legends[0].get_tightbbox())
    for number, box in enumerate(boxes):
        assert box is not None
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1
        assert not any(box.overlaps(other) for other in boxes[:number] if other is not None)


def test_a_long_run_is_thinned_and_keeps_its_peak() -> None:
    steps = 50_000
    flat = [1.0] * steps
    figure = drawn(found(flat, [1.0 + 1e-3 * (step == 31_415) for step in range(steps)], *[flat] * 8))
    line = figure.axes[0].lines[1]
    x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
    assert x.size < 20_000
    assert x[y.argmax()] == 31_415


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (path,) = save(drawn(LEAVES), tmp_path / name, ["png"])
        assert path.read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
