"""Rank 0 hears how the other tasks' ranks end, and decides when all have to."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest

from numdrift.harness.launch.running_process import Ended, ProcessEnd
from numdrift.harness.launch.tasks import ranks_of_tasks
from numdrift.harness.launch.tasks.ranks_of_tasks import RankOfTask
from numdrift.harness.launch.tasks.started_task import TORCHRUN, StartedTask
from numdrift.harness.launch.tasks.task_meeting import TaskMeeting

from .met_tasks import end, hurry, met

AHEAD = 500.0
"""The seconds that the clock of rank 2's machine is ahead."""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[TaskMeeting]]:
    hurry(monkeypatch)
    found = met(tmp_path / "meeting", [time.time, time.time, lambda: time.time() + AHEAD])
    yield found
    end(found)


def rank_of(meeting: TaskMeeting) -> RankOfTask:
    """What a task knows of its second mode's run; its process plays no part here."""
    task = StartedTask(TORCHRUN, meeting.rank, meeting.world_size, "")
    return RankOfTask(cast(Any, None), task, meeting, 1, {})


def say_end(meeting: TaskMeeting, returncode: int, why: Ended = "exited", place: int = 1, at: float = 0.0) -> None:
    meeting.say(**{f"end-{place}": asdict(ProcessEnd(returncode, why, 1.0, at))})


def test_ranks_that_end_well_stop_nobody(tasks: list[TaskMeeting]) -> None:
    first = rank_of(tasks[0])
    say_end(tasks[1], 1, place=0)  # of an earlier mode
    say_end(tasks[2], 0)
    assert first.look() == "exited"
    assert list(first.ends) == [2]


def test_a_failure_stops_the_others_after_a_while(tasks: list[TaskMeeting], monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [rank_of(meeting) for meeting in tasks]
    say_end(tasks[2], -signal.SIGKILL)
    # the others may first end by themselves
    assert [rank.look() for rank in ranks] == ["exited"] * 3
    monkeypatch.setattr(ranks_of_tasks, "GRACE_SECONDS", 0.0)
    assert [rank.look() for rank in ranks] == ["with-another"] * 3


def test_an_interruption_stops_all_at_once(tasks: list[TaskMeeting]) -> None:
    ranks = [rank_of(meeting) for meeting in tasks]
    say_end(tasks[1], -signal.SIGINT, "interrupted")
    assert [rank.look() for rank in ranks] == ["interrupted"] * 3


def test_the_time_of_an_end_is_that_of_rank_0s_clock(tasks: list[TaskMeeting]) -> None:
    first, now = rank_of(tasks[0]), time.time()
    say_end(tasks[1], 1, at=now)
    say_end(tasks[2], 1, at=now - 1.0 + AHEAD)  # a second earlier, by a clock that is ahead
    first.look()
    assert first.ends[1].at == pytest.approx(now, abs=0.5)
    assert first.ends[2].at == pytest.approx(now - 1.0, abs=0.5)


def test_a_task_that_has_gone_is_a_rank_that_is_lost(tasks: list[TaskMeeting], monkeypatch: pytest.MonkeyPatch) -> None:
    first = rank_of(tasks[0])
    with pytest.raises(OSError), tasks[2]:
        raise OSError
    first.look()
    assert (first.ends[2].why, first.ends[2].returncode) == ("lost", -signal.SIGKILL)
    monkeypatch.setattr(ranks_of_tasks, "GRACE_SECONDS", 0.0)
    assert first.look() == "with-another"
    # rank 2 can no longer leave as it should
    tasks.pop()
