from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from numdrift.plots.appearance import save
from numdrift.plots.drift_heatmap import MOST_TENSORS, ScoredStep, drift_heatmap

from .combinations import combinations_of

INF = math.inf


def figure_of(*scores: Mapping[str, float], taped: Sequence[int] = (), title: str = "t") -> Figure:
    """A column for each mapping, of the steps 0, 10, 20, ..."""
    rows = [ScoredStep(10 * place, one, place in taped) for place, one in enumerate(scores)]
    figure = drift_heatmap(rows, title=title)
    figure.canvas.draw()
    return figure


def tensors(figure: Figure) -> list[str]:
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def colors(figure: Figure, layer: int = 1) -> np.ma.MaskedArray[tuple[int, ...], np.dtype[np.float64]]:
    """The scores as they are coloured; masked where a cell is blank."""
    mesh = [one for one in figure.axes[0].collections if isinstance(one, QuadMesh)][layer]
    return np.ma.asarray(mesh.get_array())


def explained(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def crosses(figure: Figure) -> list[tuple[float, float]]:
    lines = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    return [
        (float(x), float(y))
        for line in lines
        for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
    ]


def test_tensors_stand_in_order_and_steps_are_columns() -> None:
    figure = figure_of({"loss 0": 1.0, "gradient 0 w": 20.0}, {"loss 0": 2.0, "gradient 0 w": 5.0})
    assert tensors(figure) == ["loss 0", "gradient 0 w"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["0", "10"]
    assert colors(figure).tolist() == [[1.0, 2.0], [20.0, 5.0]]


def test_identical_is_blank_infinite_is_crossed_and_what_is_not_compared_is_grey() -> None:
    figure = figure_of({"a": 0.0, "b": INF}, {"a": 3.0})
    assert colors(figure).mask.tolist() == [[True, False], [False, True]]
    assert crosses(figure) == [(0, 1)]
    assert colors(figure, layer=0).mask.tolist() == [[True, True], [True, False]]
    assert explained(figure) == ["identical", "infinite", "not compared"]


def test_the_thresholds_are_edges_of_the_colours_and_ticks_of_the_bar() -> None:
    figure = figure_of({"a": 1.0, "b": 20.0})
    mesh = [one for one in figure.axes[0].collections if isinstance(one, QuadMesh)][1]
    shades = mesh.to_rgba(np.array([1.0, 3.97, 4.03, 15.9, 16.1, 1e5, 1e300]))[:, :3]
    brightness = shades @ [0.299, 0.587, 0.114]
    assert (shades[:2, 2] > shades[:2, 0]).all(), "rounding is blue"
    assert (shades[2:4, 0] > shades[2:4, 2]).all() and (brightness[2:4] > brightness[4]).all()
    assert brightness[4] > brightness[5] > brightness[6]
    ticks = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert "4" in ticks and "16" in ticks


def test_taped_steps_are_marked_on_the_axis() -> None:
    figure = figure_of({"a": 1.0}, {"a": 2.0}, {"a": 3.0}, taped=[0, 2])
    marks = [line for line in figure.axes[0].lines if line.get_marker() == 7]
    assert [np.asarray(mark.get_xdata()).tolist() for mark in marks] == [[0, 2]]
    assert "noise measured at this step" in explained(figure)


def test_the_worst_tensors_are_drawn_and_the_others_counted() -> None:
    scores = {f"p{place}": float(place) for place in range(MOST_TENSORS + 12)}
    figure = figure_of(scores)
    assert tensors(figure) == [f"p{place}" for place in range(12, MOST_TENSORS + 12)]
    assert explained(figure) == ["not drawn: 11 more tensors, none above 11; 1 identical at every step"]


def test_a_tensor_that_is_bad_once_is_among_the_worst() -> None:
    quiet = {f"p{place}": 2.0 for place in range(2 * MOST_TENSORS)}
    figure = figure_of(quiet, quiet | {"p77": 300.0}, quiet)
    assert "p77" in tensors(figure)


def test_other_infinite_tensors_are_not_passed_over() -> None:
    figure = figure_of({f"p{place}": INF for place in range(MOST_TENSORS + 1)})
    assert explained(figure)[-1] == "not drawn: 1 more tensor, some infinite"


def test_many_steps_are_drawn_together_and_none_is_lost() -> None:
    quiet = {"a": 1.0, "b": 0.0}
    scores = [quiet | ({"b": 50.0} if step == 777 else {}) for step in range(1000)]
    figure = figure_of(*scores, taped=[778])
    drawn = colors(figure)
    assert drawn.shape[1] <= 240
    assert drawn.max() == 50.0 and drawn[1].count() == 1
    (place,) = np.flatnonzero(~drawn[1].mask)
    (mark,) = [line for line in figure.axes[0].lines if line.get_marker() == 7]
    assert np.asarray(mark.get_xdata()).tolist() == [place]
    assert "the worst of 5 steps" in figure.axes[0].get_xlabel()


def test_long_names_keep_their_ends_and_stay_different() -> None:
    prefix = "module._orig_mod.encoder.layers."
    names = [
        f"gradient 0 {prefix}0.attention.self.query.weight",
        f"gradient 0 {prefix}10.attention.self.query.weight",
        "parameter left.transformer.wrapped.by.something.else.block.weight",
        "parameter right.transformer.wrapped.by.something.else.block.weight",
        "short",
        "x" * 80,
    ]
    figure = figure_of(dict.fromkeys(names, 1.0))
    shown = tensors(figure)
    assert len(set(shown)) == len(names)
    assert shown[1].startswith("gradient 0 …") and shown[1].endswith("10.attention.self.query.weight")
    assert shown[2].startswith("parameter left")
    assert all(len(one) <= 52 for one in shown)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([], "no tensor was compared"),
        ([{}], "no tensor was compared"),
        ([{"a": 0.0}], "1 tensor is identical at the step that was compared"),
        ([{"a": 0.0, "b": 0.0}] * 3, "all 2 tensors are identical at all 3 steps that were compared"),
    ],
)
def test_nothing_to_draw_is_said(scores: list[dict[str, float]], said: str) -> None:
    figure = figure_of(*scores)
    assert [text.get_text() for text in figure.axes[0].texts] == [said]


@pytest.mark.parametrize("score", [math.nan, -1.0])
def test_what_is_no_score_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="a has the score"):
        figure_of({"a": score})


@pytest.mark.parametrize(
    ("count", "steps"),
    combinations_of(
        [1, 3, 40, 100],
        [1, 7, 60, 500],
        everyday=[(1, 1), (1, 7), (1, 60), (1, 500), (3, 1), (3, 7), (3, 60), (3, 500), (40, 7), (100, 500)],
    ),
)
def test_nothing_collides(count: int, steps: int) -> None:
    # given long names, all kinds of cells, and a title that needs two lines
    random = np.random.default_rng(0)
    names = [f"gradient 0 $module$.encoder.layers.{place}.attention.self.query.weight" for place in range(count)]
    choices = [0.0, 0.01, 3.0, 7.0, 1e3, 1e30, INF]
    scores = [{name: float(random.choice(choices)) for name in names} for _ in range(steps)]
    scores[0][names[0]] = 1.0
    scores[-1].pop(names[0]) if steps > 1 else None
    figure = figure_of(*scores, taped=range(0, steps, 3), title="a title of some length " * 6)
    # then neither panels nor labels overlap, and nothing sticks out
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes.append(figure.legends[0].get_tightbbox())
    for number, box in enumerate(boxes):
        assert box is not None
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1
        assert not any(box.overlaps(other) for other in boxes[:number] if other is not None)
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis, figure.axes[1].yaxis):
        labels = [*axis.get_ticklabels()]
        extents = [label.get_window_extent() for label in labels if label.get_text()]
        assert not any(a.overlaps(b) for a, b in pairwise(extents))


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (path,) = save(figure_of({"a": 1.0, "b": INF}, {"a": 0.0}), tmp_path / name, ["png"])
        assert path.read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
