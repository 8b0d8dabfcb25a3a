"""The parts of each step: they lie on each other, and a step that is far longer than most is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from numdrift.plots.appearance import save
from numdrift.plots.step_timeline import PARTS, TimelineStep, step_timeline

COMPILES = TimelineStep("lazy", range(6), [[9.0, 0, 0, 0, 0, 0], [0.002] * 6, [0.001] * 6, [0.0] * 6, [0.001] * 6])


def bars(mode: TimelineStep, step: int) -> list[tuple[float, float]]:
    axes = step_timeline([mode], title="x").axes[0]
    return [
        (round(one.get_y(), 6), round(one.get_height(), 6))
        for one in axes.patches
        if isinstance(one, Rectangle) and one.get_x() < step < one.get_x() + one.get_width()
    ]


def test_the_parts_of_a_step_lie_on_each_other_in_milliseconds() -> None:
    assert bars(COMPILES, 1) == [(0, 0), (0, 2), (2, 1), (3, 0), (3, 1)]


def test_a_step_that_compiles_is_cut_off_and_its_time_stands_above() -> None:
    axes = step_timeline([COMPILES], title="x").axes[0]
    assert bars(COMPILES, 0)[0] == (0, 6)
    assert [text.get_text() for text in axes.texts] == ["▲ 9 s"]
    assert axes.get_title(loc="left") == "lazy: half of the steps take 4 ms or less"


def test_like_steps_are_not_cut_off() -> None:
    axes = step_timeline(
        [TimelineStep("cpu", range(3), [[0.0] * 3, [0.01, 0.012, 0.011], *[[0.0] * 3] * 3])], title="x"
    ).axes[0]
    assert not axes.texts
    assert axes.get_ylim()[1] > 12


@pytest.mark.parametrize(
    "modes",
    [
        [TimelineStep("none", [], [[]] * len(PARTS))],
        [TimelineStep("$x_1$", range(500), [[0.001] * 500] * len(PARTS)), COMPILES],
    ],
)
def test_what_there_is_can_be_drawn(modes: list[TimelineStep], tmp_path: Path) -> None:
    written = save(step_timeline(modes, title="a_b $c$"), tmp_path / "timeline")
    assert [path.suffix for path in written] == [".png", ".svg"]
