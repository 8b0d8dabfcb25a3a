from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from numdrift.plots.appearance import save
from numdrift.plots.kernel_errors import CEILING, FLOOR, QUANTILES, ErrorsOfKernel, kernel_errors

from .combinations import combinations_of

SETS = ("random", "saturated", "offset", "range", "subnormal", "zero", "special", "ties")


def errors(largest: float) -> list[float]:
    return [largest * share for share in QUANTILES]


def figure_of(kernels: int, sets: int = 8, largest: float = 100.0, name: str = "kernel") -> Figure:
    rows = [
        ErrorsOfKernel(f"{name} {k}", f"{SETS[s % 8]} {s // 8}", errors(largest))
        for k in range(kernels)
        for s in range(sets)
    ]
    return kernel_errors(rows, title="Error of kernels")


def medians(figure: Figure, panel: int) -> list[float]:
    return [float(np.asarray(line.get_xdata())[0]) for line in figure.axes[panel].lines if line.get_marker() == "o"]


def test_each_kernel_is_a_panel_and_each_set_a_line_in_order() -> None:
    rows = [
        ErrorsOfKernel("aten", "random", errors(2.0)),
        ErrorsOfKernel("aten", "ties", errors(4.0)),
        ErrorsOfKernel("fma", "random", errors(6.0)),
        ErrorsOfKernel("fma", "ties", errors(8.0)),
    ]
    figure = kernel_errors(rows, title="t")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["aten", "fma"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["random", "ties"]
    assert (medians(figure, 0), medians(figure, 1)) == ([1.0, 2.0], [3.0, 4.0])


def test_exact_results_stand_at_zero_and_wild_ones_at_the_edge() -> None:
    figure = kernel_errors(
        [ErrorsOfKernel("a", "random", errors(0.0)), ErrorsOfKernel("b", "random", errors(1e30))], title="t"
    )
    figure.canvas.draw()
    assert medians(figure, 0) == [FLOOR] and medians(figure, 1) == [CEILING]
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert labels[0] == "0" and "geq" in labels[-1]
    assert any(line.get_marker() == ">" for line in figure.axes[1].lines)


def test_a_kernel_without_numbers_says_so() -> None:
    figure = kernel_errors([ErrorsOfKernel("a", "random", ()), ErrorsOfKernel("b", "random", errors(1.0))], title="t")
    assert [text.get_text() for text in figure.axes[0].texts] == ["not measured, or no finite result"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "largest"),
    combinations_of(
        [(1, 1), (2, 8), (9, 8), (11, 16)],
        [0.0, 3.0, 1e6, 1e30],
        everyday=[
            *(((1, 1), largest) for largest in (0.0, 3.0, 1e6, 1e30)),
            ((2, 8), 1e6),
            ((9, 8), 3.0),
            ((11, 16), 1e30),
        ],
    ),
)
def test_nothing_collides(size: tuple[int, int], largest: float) -> None:
    # given
    kernels, sets = size
    figure = figure_of(kernels, sets, largest)
    # when
    figure.canvas.draw()
    # then neither panels nor the labels of an axis overlap, and nothing sticks out
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes.append(figure.legends[0].get_tightbbox())
    for number, box in enumerate(boxes):
        assert box is not None
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:number] if other is not None)
    for axes in figure.axes:
        ticks = [tick.label1 for tick in axes.xaxis.get_major_ticks() if tick.label1.get_visible()]
        extents = [label.get_window_extent() for label in ticks if label.get_text()]
        assert not any(a.overlaps(b) for a, b in pairwise(extents))


def test_names_are_not_mathematics() -> None:
    figure = figure_of(1, 1, name="$x^2$_$")
    figure.canvas.draw()
    assert figure.axes[0].get_title(loc="left") == "$x^2$_$ 0"


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (path,) = save(figure_of(2, 2), tmp_path / name, ["png"])
        assert path.read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
