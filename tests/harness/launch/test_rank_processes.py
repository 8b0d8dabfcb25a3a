from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from numdrift.harness.launch.guest_process import Launch
from numdrift.harness.launch.running_process import (
    Ended,
    ProcessEnd,
    first_to_fail,
    rank_variables,
    thread_variables,
    together,
)
from numdrift.harness.records.modes.mode_spec import parse_mode


def launches(folder: Path, last_words: list[float | None]) -> list[Launch]:
    """A rank each, whose event log was last written at this time, or which has none."""
    found = []
    for rank, at in enumerate(last_words):
        events = folder / f"{rank}.jsonl"
        if at is not None:
            events.touch()
            os.utime(events, (at, at))
        found.append(Launch(str(rank), parse_mode("cpu"), folder, events, folder, folder))
    return found


def end(returncode: int, at: float, why: Ended = "exited") -> ProcessEnd:
    return ProcessEnd(returncode, why, 1.0, at)


@pytest.mark.parametrize(
    ("ends", "last_words", "first"),
    [
        ([end(0, 100.0), end(0, 101.0)], [99.0, 99.0], None),
        ([end(0, 100.0), end(1, 101.0)], [99.0, 99.0], 1),
        # rank 1 raised first, though its process took longer to leave
        ([end(1, 100.0), end(1, 100.5)], [99.9, 99.2], 1),
        # rank 1 was killed without a word, and rank 0 raised because its peer was gone
        ([end(1, 100.3), end(-signal.SIGKILL, 100.1)], [100.0, 90.0], 1),
        # rank 0 raised long before rank 1 was aborted
        ([end(1, 100.0), end(-signal.SIGABRT, 105.0)], [99.5, 90.0], 0),
        # whom we ended did not fail by itself
        ([end(-signal.SIGTERM, 100.0, "with-another"), end(3, 104.0)], [95.0, None], 1),
        # the machine of rank 1 stopped, and rank 0 raised because its peer was gone
        ([end(1, 101.5), end(-signal.SIGKILL, 100.0, "lost")], [101.0, 130.0], 1),
    ],
    ids=["none", "one", "slow to leave", "killed", "aborted later", "ended by us", "lost"],
)
def test_the_first_rank_to_fail(
    ends: list[ProcessEnd], last_words: list[float | None], first: int | None, tmp_path: Path
) -> None:
    assert first_to_fail(launches(tmp_path, last_words), ends) == first


def test_a_rank_has_one_thread_unless_somebody_says_otherwise() -> None:
    assert thread_variables(parse_mode("cpu"), {}) == {"OMP_NUM_THREADS": "1"}
    assert thread_variables(parse_mode("cpu"), {"OMP_NUM_THREADS": "3"}) == {}
    assert thread_variables(parse_mode("cpu,threads=2"), {}) == {}
    assert thread_variables(parse_mode("cpu,env.OMP_NUM_THREADS=2"), {}) == {}


def test_a_run_that_was_stopped_says_why_and_names_a_rank_that_had_failed_before(tmp_path: Path) -> None:
    ranks = launches(tmp_path, [90.0, 90.0])
    timed_out = [end(-signal.SIGTERM, 100.0, "timeout"), end(1, 95.0)]
    assert (together(ranks, timed_out, "timeout", 9.0).why, together(ranks, timed_out, "timeout", 9.0).rank) == (
        "timeout",
        1,
    )
    interrupted = [end(0, 100.0), end(-signal.SIGINT, 100.0, "interrupted")]
    assert together(ranks, interrupted, "interrupted", 9.0).rank == 1
    assert together(ranks, [end(0, 1.0), end(0, 1.0)], "exited", 9.0).returncode == 0


def test_the_variables_of_a_rank_count_its_machine_and_its_place_there() -> None:
    # given ranks that a scheduler has dealt out in turn, and two of them on a third machine
    hosts = ["a", "b", "a", "b", "c", "c"]
    found = [rank_variables(rank, 6, 29400, address="a", hosts=hosts) for rank in range(6)]
    assert [variables["LOCAL_RANK"] for variables in found] == ["0", "0", "1", "1", "0", "1"]
    assert [variables["GROUP_RANK"] for variables in found] == ["0", "1", "0", "1", "2", "2"]
    for variables in found:
        assert (variables["LOCAL_WORLD_SIZE"], variables["GROUP_WORLD_SIZE"]) == ("2", "3")
        assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("a", "29400")
