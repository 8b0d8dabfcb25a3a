"""The meeting of tasks in a shared folder: threads of the test take the place of tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import TaskGone, UsageError
from numdrift.harness.launch.tasks import task_meeting as module
from numdrift.harness.launch.tasks.task_meeting import TaskMeeting

from .met_tasks import end, hurry, met


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def test_tasks_meet_talk_and_leave_with_one_exit_code(tmp_path: Path) -> None:
    tasks = met(tmp_path / "meeting", [time.time] * 3)
    assert all(len(task.hosts) == 3 for task in tasks)
    # rank 0 hears each of the others, and each of them hears rank 0
    tasks[2].say(word=5)
    tasks[0].say(go={"port": 1})
    assert tasks[0].wait_for(2, "word") == ("word", 5)
    assert tasks[1].wait_for(0, "over", "go") == ("go", {"port": 1})
    assert end(tasks, 3) == [3, 3, 3]
    assert not (tmp_path / "meeting").exists()


def test_the_boards_of_an_earlier_launch_count_for_nothing(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    # given boards of tasks that were killed: both say that they have met, and rank 0 that all is over
    for rank in (0, 1):
        facts: dict[str, Any] = {"seen": {"1": ["old", 0, 0]}, "hosts": ["a", "b"], "offset": 5000.0, "over": 9}
        board = {"token": "old", "beat": 7, "time": 0.0, "host": "a", "processes": "", "pid": 1, "facts": facts}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(board))
    # when a new rank 1 finds them, and rank 0 comes later
    late = pool.submit(TaskMeeting(tmp_path, 1, 2).meet)
    time.sleep(0.1)
    assert not late.done()
    first = TaskMeeting(tmp_path, 0, 2)
    first.meet()
    # then the two have met, and know nothing of the earlier ones
    assert late.result() is None
    assert first.clock_sentences() == []
    first.leave()


@pytest.mark.parametrize(
    ("rank", "words"),
    [(0, "ranks 1, 2 of 3 wrote nothing to {out} within 0 s"), (2, "rank 2 on .* found nothing from rank 0 in {out}")],
)
def test_a_folder_that_is_not_shared_is_named(
    rank: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.PATIENCE, "0.1")
    with pytest.raises(
        UsageError, match=words.format(out=tmp_path) + ".*name with --out a folder that all of them see"
    ):
        TaskMeeting(tmp_path / "meeting", rank, 3).meet()
    assert not (tmp_path / "meeting").exists()


def test_the_others_end_with_rank_0_if_one_does_not_come(
    pool: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.PATIENCE, "0.3")
    first, second = (pool.submit(TaskMeeting(tmp_path / "meeting", rank, 3).meet) for rank in (0, 1))
    with pytest.raises(UsageError, match="rank 2 of 3 wrote nothing"):
        first.result()
    assert second.result() == 2  # and has raised nothing: rank 0 has said it


def test_a_time_to_wait_that_is_no_number_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.PATIENCE, "long")
    with pytest.raises(UsageError, match="NUMDRIFT_MEETING_SECONDS=long is not a number of seconds"):
        TaskMeeting(tmp_path / "meeting", 0, 2).meet()


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot be written to .*; choose another folder with --out"):
        TaskMeeting(tmp_path / "file" / "meeting", 0, 2).meet()


@pytest.mark.parametrize(("ahead", "words"), [(0.0, None), (300.0, "300 s ahead of"), (-7200.0, "7,200 s behind")])
def test_clocks_that_differ_are_named(ahead: float, words: str | None, tmp_path: Path) -> None:
    # given a rank 1 whose clock is ahead
    tasks = met(tmp_path / "meeting", clocks=[time.time, lambda: time.time() + ahead])
    # then rank 0 knows by how much, and says so
    assert tasks[0].offsets[1] == pytest.approx(-ahead, abs=1.0)
    sentences = tasks[0].clock_sentences()
    assert len(sentences) == (words is not None)
    if words is not None:
        assert words in sentences[0] and "(rank 1)" in sentences[0]
    end(tasks)


def test_a_task_that_no_longer_writes_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = met(tmp_path / "meeting")
    monkeypatch.setattr(module, "GONE_SECONDS", 0.5)
    time.sleep(0.7)
    tasks[0].facts(1)  # both show that they live
    tasks[1]._left.set()  # as if it had been killed, with its machine
    with pytest.raises(TaskGone, match="rank 1 on"):
        tasks[0].wait_for(1, "anything")
    tasks[0].leave()


def test_a_task_that_fails_is_gone_at_once(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    tasks = met(tmp_path / "meeting")
    with pytest.raises(KeyError), tasks[1]:
        raise KeyError
    with pytest.raises(TaskGone, match="rank 1 on"):
        tasks[0].wait_for(1, "anything")
    # and where rank 0 fails, its exit code is that of the others
    tasks = met(tmp_path / "meeting")
    left = pool.submit(tasks[1].leave)
    with pytest.raises(UsageError), tasks[0]:
        raise UsageError("wrong")
    assert left.result() == 2


def test_a_task_of_this_machine_that_has_ended_is_gone_at_once(tmp_path: Path) -> None:
    tasks = met(tmp_path / "meeting")
    tasks[1]._left.set()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    board = json.loads((tmp_path / "meeting/rank1.json").read_text())
    assert board["pid"] == os.getpid()
    (tmp_path / "meeting/rank1.json").write_text(json.dumps(board | {"pid": ended.pid}))
    # while a process of another container may have the number of one that has ended here
    (tmp_path / "meeting/rank1.json").write_text(json.dumps(board | {"pid": ended.pid, "processes": "pid:[1]"}))
    assert "offset" in tasks[0].facts(1)
    (tmp_path / "meeting/rank1.json").write_text(json.dumps(board | {"pid": ended.pid}))
    began = time.monotonic()
    with pytest.raises(TaskGone):
        tasks[0].wait_for(1, "anything")
    assert time.monotonic() - began < module.GONE_SECONDS / 2
    tasks[0].leave()
