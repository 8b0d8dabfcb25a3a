from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from numdrift.plots.appearance import (
    PALETTE,
    Stroke,
    finish_axes,
    place_legend,
    save,
    set_log_range,
    titled_figure,
)


def overlapping(texts: list[Text]) -> list[tuple[str, str]]:
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    return [(a, b) for (a, x), (b, y) in combinations(boxes, 2) if x.overlaps(y)]


def seen_tick_labels(axes: Axes) -> list[Text]:
    texts = []
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            label = tick.label1
            if low <= tick.get_loc() <= high and label.get_visible() and label.get_text():
                texts.append(label)
    return texts


@pytest.mark.parametrize("size", [(2.0, 1.5), (9.0, 2.2), (12.0, 8.0)])
@pytest.mark.parametrize("steps", [1, 40, 3_000_000])
@pytest.mark.parametrize("values", [(1e-9, 1e-3), (3e-7, 4e-7), (1e-300, 1e300), (5e-324, 5e-324), (1.0, 1.0)])
def test_log_ticks_never_collide_and_there_are_some(
    size: tuple[float, float], steps: int, values: tuple[float, float]
) -> None:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, steps - 1], values)
    set_log_range(axes, np.array(values))
    finish_axes(axes, x_label="step", y_label="drift")
    figure.canvas.draw()
    labels = seen_tick_labels(axes)
    assert overlapping(labels) == []
    assert sum(text.get_text().startswith("$") for text in labels) >= 2


@pytest.mark.parametrize("size", [(2.0, 1.5), (9.0, 2.2)])
@pytest.mark.parametrize("values", [(2.30000001, 2.3), (0.0, 0.0), (-1e6, 1e6), (1e-12, 2e-12)])
def test_linear_ticks_never_collide(size: tuple[float, float], values: tuple[float, float]) -> None:
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([0, 999], values)
    finish_axes(axes, x_label="step", y_label="loss")
    figure.canvas.draw()
    assert overlapping(seen_tick_labels(axes)) == []


def test_steps_are_whole_numbers_even_for_one_step() -> None:
    figure, (axes,) = titled_figure("one", [1])
    axes.plot([7], [1.0])
    finish_axes(axes)
    figure.canvas.draw()
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [7]


def test_nine_strokes_differ_without_color_and_get_narrower() -> None:
    strokes = [Stroke(index, 9) for index in range(9)]
    assert len({(stroke.dashes, stroke.marker) for stroke in strokes}) == 9
    assert len({(stroke.color, stroke.dashes) for stroke in strokes}) == 9
    widths = [stroke.width for stroke in strokes]
    assert widths == sorted(widths, reverse=True)
    assert [bool(stroke.dashes) for stroke in strokes] == [False] + [True] * 8
    orders = [stroke.line([0], [0]).get_zorder() for stroke in strokes]
    assert orders == sorted(orders)
    assert len(set(PALETTE)) == len(PALETTE)


def test_markers_of_different_curves_stand_at_different_steps() -> None:
    places = [stroke.line(range(1000), range(1000)).get_markevery() for stroke in (Stroke(0, 2), Stroke(1, 2))]
    assert places == [(0, 125), (62, 125)]
    assert Stroke(1, 2).line([3], [1.0]).get_markevery() == 1


@pytest.mark.parametrize("label", ["cpu", "$x_1$ 50%", "_hidden", "W" * 300, "a/b-c_d " * 40])
def test_title_and_legend_stay_inside_and_are_taken_literally(label: str) -> None:
    # given
    figure, (axes,) = titled_figure(label, [1])
    axes.plot([0, 1], [0, 1])
    finish_axes(axes, x_label="step", y_label="loss")
    # when
    place_legend(figure, [(Stroke(index, 3), label) for index in range(3)])
    figure.canvas.draw()
    # then
    title, legend = figure.texts[0], figure.legends[0]
    words = "".join(label.split())
    assert ["".join(text.get_text().split()) for text in [title, *legend.get_texts()]] == [words] * 4
    boxes = [title.get_window_extent(), axes.get_tightbbox(), legend.get_window_extent()]
    for box in boxes:
        assert box is not None
        assert box.x0 >= 0 and box.y0 >= 0
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
    assert not any(x.overlaps(y) for x, y in combinations(boxes, 2) if x and y)


def drawn() -> Figure:
    figure, (axes,) = titled_figure("same bytes", [1])
    axes.add_line(Stroke(0, 1).line(range(50), range(50)))
    axes.autoscale_view()
    finish_axes(axes)
    place_legend(figure, [(Stroke(0, 1), "cpu")])
    return figure


def test_equal_figures_are_saved_as_equal_bytes(tmp_path: Path) -> None:
    settings = dict(mpl.rcParams)
    first = save(drawn(), tmp_path / "v1.2_loss_curve")
    second = save(drawn(), tmp_path / "again", formats=("png", "svg"))
    assert [path.name for path in first] == ["v1.2_loss_curve.png", "v1.2_loss_curve.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert b"<dc:date>" not in first[1].read_bytes()
    assert dict(mpl.rcParams) == settings


def test_pyplot_is_not_loaded() -> None:
    code = "import sys, numdrift.plots.loss_curve; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
