"""The bars of a step's phases: as long as the times, in the order that was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from numdrift.plots.appearance import save
from numdrift.plots.phase_times import ModeTimes, phase_times

MODES = [
    ModeTimes("cpu", {"forward": 2.0, "backward": 3.0}),
    ModeTimes("lazy", {"forward": 1.0, "graph execution": 6.0}),
]
ORDER = ["forward", "backward", "graph execution"]


def test_the_pieces_of_a_bar_follow_each_other() -> None:
    (axes,) = phase_times(MODES, ORDER, title="x").axes
    pieces = [one for one in axes.patches if isinstance(one, Rectangle)]
    assert [(one.get_x(), one.get_width()) for one in pieces] == [(0, 2), (2, 3), (0, 1), (1, 6)]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cpu", "lazy"]


def test_the_whole_time_stands_at_the_end_of_the_bar() -> None:
    (axes,) = phase_times(MODES, ORDER, title="x").axes
    assert {"5 ms", "7 ms"} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize("modes", [[], [ModeTimes("$x_1$", {})], MODES * 4])
def test_what_there_is_can_be_drawn(modes: list[ModeTimes], tmp_path: Path) -> None:
    written = save(phase_times(modes, ORDER, title="a_b $c$"), tmp_path / "phase_times")
    assert [path.suffix for path in written] == [".png", ".svg"]


def test_a_device_has_a_bar_below_its_hosts_with_the_same_colours() -> None:
    modes = [
        ModeTimes("cpu", {"forward": 2.0}),
        ModeTimes("cuda", {"forward": 1.0, "backward": 1.0}, {"backward": 4.0}),
    ]
    (axes,) = phase_times(modes, ORDER, title="x").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cpu", "cuda host", "cuda device"]
    pieces = [one for one in axes.patches if isinstance(one, Rectangle)]
    assert [(round(one.get_y() + 0.31), one.get_width()) for one in pieces] == [(0, 2), (1, 1), (1, 1), (2, 4)]
    assert pieces[2].get_facecolor() == pieces[3].get_facecolor() != pieces[1].get_facecolor()
