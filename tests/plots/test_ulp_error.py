from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from numdrift.plots.ulp_error import UlpEnvelope, UlpZoom, ulp_error

from .combinations import combinations_of


def envelope(label: str, height: float = 1.0, low: float = -6, high: float = 2, count: int = 64) -> UlpEnvelope:
    """Errors that are largest at 1, for inputs of both signs."""
    places = np.linspace(low, high, count)
    largest = height * np.exp(-(places**2))
    inputs = np.concatenate([-(10 ** places[::-1]), 10**places])
    return UlpEnvelope(label, inputs, np.concatenate([largest[::-1], largest]), np.zeros(2 * count))


def zoom(*labels: str, error: float = 3.0, count: int = 41) -> UlpZoom:
    offsets = np.arange(count) - count // 2
    errors = {label: error * np.cos(offsets / 9 + index) for index, label in enumerate(labels)}
    return UlpZoom("the worst of a, 1.5 (0x3fc0)", offsets, 1.5 + offsets / 128, errors)


def points(line: Line2D) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], ...]:
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def curves(figure: Figure, panel: int) -> list[Line2D]:
    """The lines of largest errors in a panel, those of the mean and the 0.5 line left out."""
    return [line for line in figure.axes[panel].lines if line.get_alpha() is None and len(points(line)[0]) > 2]


def ticks(figure: Figure, panel: int) -> list[str]:
    figure.canvas.draw()
    return [text.get_text() for text in figure.axes[panel].get_xticklabels()]


def collisions(figure: Figure) -> list[tuple[str, str]]:
    """Draw the figure and return the panels and texts that overlap each other or stick out."""
    figure.canvas.draw()
    blocks = {f"panel {number}": axes.get_tightbbox() for number, axes in enumerate(figure.axes)}
    blocks |= {"legend": figure.legends[0].get_tightbbox(), "title": figure.texts[0].get_window_extent()}
    for number, axes in enumerate(figure.axes):
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = min(low, high), max(low, high)
            shown = [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            boxes = [text.get_window_extent() for text in shown if text.get_text() and text.get_visible()]
            if any(a.overlaps(b) for a, b in combinations(boxes, 2)):
                return [(f"panel {number}", f"{axis.axis_name} ticks")]
    outside = [(name, "figure") for name, b in blocks.items() if b and (b.x0 < 0 or b.x1 > figure.bbox.x1)]
    pairs = combinations(blocks.items(), 2)
    return outside + [(a, b) for (a, x), (b, y) in pairs if x is not None and y is not None and x.overlaps(y)]


def test_negative_inputs_are_mirrored_to_the_left_and_the_zoom_is_below() -> None:
    figure = ulp_error([envelope("a", 2), envelope("b", 1)], title="two", zoom=zoom("a", "b"))
    left, right, below = figure.axes
    assert left.xaxis_inverted() and not right.xaxis_inverted()
    assert left.get_xlim() == right.get_xlim()[::-1]
    assert left.get_ylim() == right.get_ylim()
    for panel in (0, 1):
        assert [points(line)[1].max() for line in curves(figure, panel)] == pytest.approx([2, 1], rel=0.01)
        assert [points(line)[0][points(line)[1].argmax()] for line in curves(figure, panel)] == pytest.approx(
            [0, 0], abs=0.1
        )
    assert "1.5 (0x3fc0)" in below.get_xlabel()
    assert [len(points(line)[0]) for line in curves(figure, 2)] == [41, 41]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "a: max 1.998 ULP",
        "b: max 0.999 ULP",
    ]


def test_inputs_of_one_sign_have_one_panel() -> None:
    both = envelope("a")
    positive = UlpEnvelope("a", both.inputs[64:], both.largest[64:], both.mean[64:])
    figure = ulp_error([positive], title="one side")
    assert [axes.get_xlabel() for axes in figure.axes] == ["positive inputs"]


def test_where_there_is_no_error_the_axis_is_cut_off() -> None:
    figure = ulp_error([envelope("a", low=-40, high=30, count=560)], title="cut")
    low, high = figure.axes[1].get_xlim()
    # exp(-x^2) is above 0.005 up to 2.3
    assert (low, high) == pytest.approx((-2.8, 2.8), abs=0.15)


def test_without_any_error_all_inputs_are_shown() -> None:
    figure = ulp_error([envelope("exact", 0.0)], title="exact")
    assert figure.axes[1].get_xlim() == pytest.approx((-6, 2))
    assert collisions(figure) == []


def test_many_bins_are_drawn_together_and_a_peak_stays() -> None:
    rows = envelope("a", count=2000)
    rows.largest[2000 + 777] = 7.5
    figure = ulp_error([rows], title="peak")
    x, y = points(curves(figure, 1)[0])
    assert len(x) <= 180
    assert y.max() == 7.5
    assert x[y.argmax()] == pytest.approx(np.log10(rows.inputs[2000 + 777]), abs=0.05)


@pytest.mark.parametrize(("height", "scale"), [(0.5, "linear"), (7.9, "linear"), (9.0, "log"), (1e30, "log")])
def test_large_errors_make_the_axis_logarithmic(height: float, scale: str) -> None:
    figure = ulp_error([envelope("a", height, count=65)], title="scale")
    assert figure.axes[0].get_yscale() == scale
    assert figure.axes[0].get_ylim()[1] <= 1e10


@pytest.mark.parametrize(("height", "cut"), [(1e8, False), (9e8, False), (1.1e9, True), (1e30, True)])
def test_a_line_that_leaves_the_axis_is_told_of_in_the_legend(height: float, cut: bool) -> None:
    rows = [envelope("a", height, count=65), envelope("b", 20.0)]
    figure = ulp_error(rows, title="cut")
    first, second = (text.get_text() for text in figure.legends[0].get_texts())
    assert ("cut off at 1e9" in first) is cut and "cut off" not in second
    assert bool(figure.axes[0].get_ylim()[1] < rows[0].largest.max()) is cut


def test_the_zoom_is_logarithmic_to_both_sides_of_small_errors() -> None:
    drawn = zoom("a", error=1000)
    below = ulp_error([envelope("a")], title="zoom", zoom=drawn).axes[2]
    assert below.get_yscale() == "symlog"
    low, high = below.get_ylim()
    assert 1.5 * drawn.errors["a"].min() < low < drawn.errors["a"].min()
    assert drawn.errors["a"].max() < high < 1.5 * drawn.errors["a"].max()


def test_a_short_range_has_plain_numbers_on_its_axis() -> None:
    assert ticks(ulp_error([envelope("a", low=-0.5, high=0.6)], title="short"), 1) == ["0.5", "1", "2"]
    assert ticks(ulp_error([envelope("a", low=-0.5, high=0.6)], title="short"), 0) == ["-0.5", "-1", "-2"]


@pytest.mark.parametrize(
    ("height", "limits"),
    combinations_of(
        [0.5, 30.0, 1e8, 1e30],
        [(-0.001, 0.001), (-1, 1), (-6, 2), (-44, 38)],
        everyday=[(0.5, (-0.001, 0.001)), (30.0, (-1, 1)), (1e8, (-6, 2)), (1e30, (-44, 38)), (0.5, (-44, 38))],
    ),
)
def test_nothing_collides(height: float, limits: tuple[float, float]) -> None:
    low, high = limits
    labels = [f"kernel {number}" for number in range(10)]
    rows = [envelope(label, height / (1 + number), low, high) for number, label in enumerate(labels)]
    assert collisions(ulp_error(rows, title="t " * 90, zoom=zoom(*labels, error=height))) == []


def test_errors_that_are_not_finite_leave_gaps_in_the_zoom() -> None:
    around = zoom("a")
    around.errors["a"][:30] = np.nan
    figure = ulp_error([envelope("a")], title="gaps", zoom=around)
    assert np.isnan(points(curves(figure, 2)[0])[1]).sum() == 30
    assert collisions(figure) == []


def test_nothing_to_draw_and_equal_labels_are_refused() -> None:
    none = np.zeros(0)
    with pytest.raises(ValueError, match="nothing to draw"):
        ulp_error([UlpEnvelope("a", none, none, none)], title="empty")
    with pytest.raises(ValueError, match="different labels: a, a"):
        ulp_error([envelope("a"), envelope("a")], title="same")
