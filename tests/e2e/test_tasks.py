"""Runs that a launcher starts as several commands: by srun's variables, and by two of torchrun's agents on this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from numdrift import load_run
from numdrift.harness.runs.recorded_run import RecordedRun, ranks_of

from ..conftest import ROOT
from ..processes.forked import numdrift_in

SCRIPT = ROOT / "tests" / "e2e" / "scripts" / "ranks.py"

Done = subprocess.CompletedProcess[str]


@pytest.fixture(autouse=True)
def forked_with_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that torchrun starts have one thread each. Said here, they are forked off a process that was started with one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def by_srun(folders: list[Path], *arguments: str | Path, **variables: Any) -> list[Done]:
    """One command as tasks of srun, each in its folder."""

    def task(rank: int) -> Done:
        of_srun: Any = {"SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(len(folders)), "SLURM_JOB_ID": "7"}
        return numdrift_in(folders[rank], "run", *arguments, **of_srun, **variables)

    with ThreadPoolExecutor(len(folders)) as pool:
        return list(pool.map(task, range(len(folders))))


def by_two_agents(folder: Path, *arguments: str | Path) -> list[Done]:
    """One command as typed on each of two machines: two agents on this one, with two ranks each."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    several = ("--nnodes", "2", "--nproc", "2", "--rdzv-endpoint", endpoint)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: numdrift_in(folder, "run", *several, *arguments), range(2)))


def ranks(folder: Path, mode: str) -> list[RecordedRun]:
    return ranks_of(load_run(folder / "runs" / "study" / mode))


def content(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_tasks_of_srun_record_what_the_ranks_of_one_command_do(tmp_path: Path) -> None:
    # given the ranks that one command starts
    modes = ("--mode", "cpu", "--mode", "b=cpu,env.FAULT=1")
    one = numdrift_in(tmp_path, "run", SCRIPT, *modes, "--nproc", "2", "--name", "one", "--json", "-")
    # when srun starts a command per rank
    first, second = by_srun([tmp_path, tmp_path], SCRIPT, *modes, "--name", "study", "--json", "-")
    assert (one.returncode, first.returncode, second.returncode) == (0, 0, 0), first.stderr + second.stderr
    # then both have recorded the same in one folder, and rank 0 alone tells
    assert second.stdout == second.stderr == ""
    for run, expected in zip(content(first)["runs"], content(one)["runs"], strict=True):
        assert run["ranks"] == expected["ranks"]
        assert run["agreement"] == expected["agreement"]
        assert run["world_size"] == 2 and run["status"] == "complete"
        assert run["files"]["own"]  # both are on one machine and share a working folder
    for mode in ("cpu", "b"):
        expected_ranks = ranks_of(load_run(tmp_path / "runs" / "one" / mode))
        for task, rank in zip(ranks(tmp_path, mode), expected_ranks, strict=True):
            assert task.manifest.rank == rank.manifest.rank
            assert task.journal.losses == rank.journal.losses
            assert task.digests().equals(rank.digests())
    # and nothing is left of the meeting
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["one", "study"]


@pytest.mark.slow
def test_a_task_that_is_killed_ends_the_run(tmp_path: Path) -> None:
    journals = [tmp_path / "runs/study/cpu" / place / "journal/events.jsonl" for place in ("", "rank1")]
    with ThreadPoolExecutor(1) as pool:
        # given ranks of which one hangs in step 1
        wrong = ("--", "--at", "1", "--rank", "0", "--then", "hang")
        tasks = pool.submit(by_srun, [tmp_path, tmp_path], SCRIPT, "--modes", "cpu", "--name", "study", *wrong)
        until = time.monotonic() + 200
        while not all(path.exists() and '"event":"step"' in path.read_text() for path in journals):
            assert time.monotonic() < until and not tasks.done(), "waited in vain"
            time.sleep(0.1)
        # when the numdrift that watches rank 1 is killed
        killed = load_run(tmp_path / "runs/study/cpu/rank1").manifest.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        first, second = tasks.result()
    # then rank 0 does not wait for it
    assert (first.returncode, second.returncode) == (3, -signal.SIGKILL)
    assert (
        "mode cpu killed: rank 1: its machine, or the numdrift that watched it there, no longer answers" in first.stderr
    )
    assert [run.manifest.status for run in ranks(tmp_path, "cpu")] == ["killed", "killed"]
    assert [len(run.journal.steps) for run in ranks(tmp_path, "cpu")] == [1, 1]


def test_a_folder_that_is_not_shared_is_found_before_anything_runs(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = by_srun(folders, SCRIPT, "--modes", "cpu", NUMDRIFT_MEETING_SECONDS="2")
    assert (first.returncode, second.returncode) == (2, 2)
    assert "rank 1 of 2 wrote nothing to runs within 2 s" in first.stderr
    assert "rank 1 on" in second.stderr and "found nothing from rank 0 in runs within 2 s" in second.stderr
    for done in (first, second):
        assert done.stderr.count("\n") == 1 and "name with --out a folder that all of them see" in done.stderr
    assert not any((folder / "runs" / "ranks").exists() for folder in folders)


def test_a_plan_that_rank_0_refuses_is_refused_once(tmp_path: Path) -> None:
    first, second = by_srun([tmp_path, tmp_path], SCRIPT, "--modes", "cpu", "--record", "tensors")
    assert (first.returncode, second.returncode) == (2, 2)
    assert "name the steps, as in --steps 0,1" in first.stderr
    assert second.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "variables", "words"),
    [
        (("run", "--nproc", "2"), {"SLURM_PROCID": "0"}, "each time records one rank: leave out --nproc 2"),
        (("run", "--jobs", "2"), {"SLURM_PROCID": "0"}, "run one after another, in step: leave out --jobs"),
        (("run", "--pass-through"), {"SLURM_PROCID": "0"}, "in one process: start numdrift once"),
        (("run", "--max-seconds", "5"), {"SLURM_PROCID": "0"}, "limit the steps instead, as with --max-steps 20"),
        (("investigate",), {"SLURM_PROCID": "0"}, "start `numdrift investigate` once, or unset SLURM_PROCID"),
        (("run", "--nnodes", "2"), {}, "as in --rdzv-endpoint node0:29400"),
        (("run", "--rdzv-endpoint", "node0:29400"), {}, "state their number, as in --nnodes 2"),
        (("run", "--nnodes", "2", "--rdzv-endpoint", "node0"), {}, "'node0' is not HOST:PORT, as in node0:29400"),
        (("run", "--nnodes", "2", "--rdzv-endpoint", "no.such.invalid:1"), {}, "does not know no.such.invalid"),
    ],
)
def test_a_launch_that_makes_no_sense_is_refused(
    arguments: tuple[str, ...], variables: dict[str, str], words: str, tmp_path: Path
) -> None:
    command, *options = arguments
    of_srun: Any = {**variables, "SLURM_STEP_NUM_TASKS": "2"} if variables else {}
    done = numdrift_in(tmp_path, command, SCRIPT, "--modes", "cpu", *options, **of_srun)
    assert done.returncode == 2
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_two_agents_record_one_run_and_end_with_the_rank_that_fails(tmp_path: Path) -> None:
    # given a mode in which all is well, and one in which rank 3 dies in step 2
    modes = ("--mode", "cpu", "--mode", "b=cpu,env.AT=2")
    first, second = by_two_agents(
        tmp_path, SCRIPT, *modes, "--name", "study", "--", "--steps", "3", "--rank", "3", "--then", "kill"
    )
    # then both commands end in the same way, and one of them tells
    assert (first.returncode, second.returncode) == (3, 3), first.stderr + second.stderr
    told, other = sorted((first, second), key=lambda done: -len(done.stdout))
    assert other.stdout == ""
    assert "cpu: ranks agree: 4 parameters" in told.stdout
    assert "mode b killed: rank 3: by SIGKILL; steps 0 to 1 are kept" in told.stderr
    # and all ranks are in one folder, with what was recorded before
    well, ill = ranks(tmp_path, "cpu"), ranks(tmp_path, "b")
    assert [run.manifest.status for run in well] == ["complete"] * 4
    assert [len(run.journal.steps) for run in well] == [3] * 4
    assert [len(run.journal.steps) for run in ill] == [2] * 4
    assert ill[0].manifest.status == "killed" and ill[3].manifest.message == "by SIGKILL"
    assert [run.journal.losses for run in ill] == [run.journal.losses[:2] for run in well]
    assert {run.manifest.world_size for run in (*well, *ill)} == {4}
    # within seconds of its death
    ended = max((run.path / "run.json").stat().st_mtime for run in ill)
    died = (ill[3].path / "journal" / "events.jsonl").stat().st_mtime
    assert ended - died < 30
