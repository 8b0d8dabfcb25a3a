from __future__ import annotations

import io

import pytest

from numdrift.harness.cli.kernels import measuring_bars
from numdrift.harness.cli.kernels.measuring_bars import LateBar


class Screen(io.StringIO):
    """What standard error is, in a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.mark.parametrize(
    ("terminal", "patience", "shown"), [(True, -1.0, True), (True, 60.0, False), (False, -1.0, False)]
)
def test_the_bar_is_there_for_people_who_wait(
    terminal: bool, patience: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    screen = Screen(terminal)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(measuring_bars, "PATIENCE", patience)
    # when
    with LateBar() as bar:
        bar.update(3, 8, "fma on random")
    # then
    assert ("fma on random" in screen.getvalue()) is shown
    assert ("3/8" in screen.getvalue()) is shown
