"""Tasks that have met in a folder: threads take the place of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from numdrift.harness.launch.tasks import task_meeting
from numdrift.harness.launch.tasks.task_meeting import TaskMeeting


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks look and write more often."""
    monkeypatch.setattr(task_meeting, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(task_meeting, "BEAT_SECONDS", 0.1)
    monkeypatch.setenv(task_meeting.PATIENCE, "20")


def met(folder: Path, clocks: Sequence[Callable[[], float]] = (time.time, time.time)) -> list[TaskMeeting]:
    """The tasks of a launch, one per clock, once they have met; the last comes first."""
    tasks = [TaskMeeting(folder, rank, len(clocks), clock=clock) for rank, clock in enumerate(clocks)]
    with ThreadPoolExecutor(len(tasks)) as pool:
        for future in [pool.submit(task.meet) for task in reversed(tasks)]:
            assert future.result() is None
    return tasks


def end(tasks: Sequence[TaskMeeting], code: int = 0) -> list[int]:
    """The exit codes with which the tasks leave."""
    tasks[0].exit_code = code
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task.leave) for task in tasks]]
