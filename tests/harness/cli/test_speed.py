from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from numdrift.harness.cli.progress import PlainReporter, UnderstoodLines, describe
from numdrift.harness.launch.journal_tail import Compilations, JournalProgress
from numdrift.harness.launch.running_process import Ended, ProcessEnd


@pytest.mark.parametrize(
    ("steps", "seconds", "said"),
    [
        (1200, 2.0, "step 1,200  loss 0.5  600.0 steps/s"),
        (10, 10.0, "step 10  loss 0.5  1.0 steps/s"),
        (2, 90.0, "step 2  loss 0.5  45.0 s/step"),
        (0, 90.0, "step 0  loss 0.5"),
    ],
)
def test_a_slow_mode_has_its_seconds_a_step(steps: int, seconds: float, said: str) -> None:
    assert describe(JournalProgress(steps=steps, loss=0.5, seconds=seconds)) == said


def test_what_is_compiled_again_is_said_to_be() -> None:
    again = Compilations(6, True, True, "/home/train.py:7", time.monotonic(), 2)
    said = describe(JournalProgress(1, None, 0.0, compilations=again), expected=6)
    assert said == "step 1  compiling graph 2 again, to look inside it (backward, train.py:7), 0 s so far"


def test_a_long_compilation_is_said_once_and_then_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a mode whose graphs take 2, 40 and 8 seconds, looked at every second
    clock, shown = [100.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    known = UnderstoodLines()

    def follow(name: str) -> list[str]:
        reporter = PlainReporter(Console(file=shown, width=200), known)
        reporter.started(name)
        for graph, (seconds, line) in enumerate([(2, "train.py:7"), (40, "train.py:7"), (8, "model.py:3")], 1):
            began = clock[0]
            for _ in range(seconds):
                clock[0] += 1
                under_way = Compilations(graph, True, graph == 2, f"/home/{line}", began)
                reporter.progressed(name, JournalProgress(0, None, 0.0, compilations=under_way))
        reporter.progressed(name, JournalProgress(1, 0.5, 55.0, compilations=Compilations(3)))
        said = shown.getvalue().splitlines()
        shown.seek(0), shown.truncate()
        return said

    assert follow("compile") == [
        "compile: started",
        "compile: step 0  compiling graph 2 (backward, train.py:7), 5 s so far",
        "compile: step 0  compiling graph 2 (backward, train.py:7), 35 s so far",
        "compile: step 0  compiling graph 3 (model.py:3), 5 s so far",
    ]
    # and a later run of the mode knows how many there are
    assert "compile-again: step 0  compiling graph 2 of 3 (backward, train.py:7), 5 s so far" in follow("compile-again")


def test_a_silent_step_is_said_at_once_and_then_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a first step in which nothing is heard for 200 seconds, told of at every second from 30 on
    clock, shown = [100.0], io.StringIO()
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reporter = PlainReporter(Console(file=shown, width=200), UnderstoodLines())
    reporter.started("lazy")
    reporter.started("cpu")
    for second in range(30, 200):
        clock[0] = 100.0 + second
        for name in ("lazy", "cpu"):  # the other mode is as silent, and its lines are its own
            reporter.progressed(name, JournalProgress(0, None, 0.0, silent_since=100.0))
    # when: it is killed
    reporter.ended("lazy", ProcessEnd(-9, "exited", 200.0))
    # then
    assert [line for line in shown.getvalue().splitlines() if line.startswith("lazy")] == [
        "lazy: started",
        "lazy: step 0  30 s so far",
        "lazy: step 0  90 s so far",
        "lazy: step 0  150 s so far",
        "lazy: killed, no step  200.0 s",
    ]


@pytest.mark.parametrize(
    ("returncode", "why", "said"),
    [
        (0, "exited", "ended"),
        (1, "exited", "failed"),
        (-11, "exited", "killed"),
        (-9, "out-of-memory", "killed for lack of memory"),
        (-15, "timeout", "timed out"),
        (0, "timeout", "timed out"),
        (-2, "interrupted", "interrupted"),
    ],
)
def test_the_last_line_says_how_a_run_ended(returncode: int, why: Ended, said: str) -> None:
    shown = io.StringIO()
    reporter = PlainReporter(Console(file=shown, width=200), UnderstoodLines())
    reporter.ended("lazy", ProcessEnd(returncode, why, 3.2))
    assert shown.getvalue() == f"lazy: {said}, no step  3.2 s\n"
