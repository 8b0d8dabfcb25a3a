"""How trainings run on an accelerator, and how they fail there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Standin
from .scripts_trained import RANKS, WIDE

pytestmark = pytest.mark.slow


@pytest.fixture
def script(standin: Standin) -> Path:
    path = standin.folder / "train.py"
    path.write_text(WIDE)
    return path


def status(standin: Standin, run: str) -> Any:
    return json.loads((standin.folder / "runs" / run / "run.json").read_text())["status"]


def steps(standin: Standin, run: str) -> int:
    events = (standin.folder / "runs" / run / "journal" / "events.jsonl").read_text().splitlines()
    return sum(json.loads(line)["event"] == "step" for line in events)


def test_a_lost_device_ends_its_mode_alone(standin: Standin, script: Path) -> None:
    done = standin("run", script, "--modes", "standin,cpu", "--name", "lost", STANDIN_LOST_AT="260", STANDIN_EAGER="1")

    assert done.returncode == 3
    assert (status(standin, "lost/standin"), status(standin, "lost/cpu")) == ("crashed", "complete")
    assert 0 < steps(standin, "lost/standin") < 4
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("numdrift: mode standin crashed")]
    assert "the device is lost" in line


def test_a_training_without_memory_is_recorded_and_the_next_goes_on(standin: Standin, script: Path) -> None:
    done = standin("run", script, "--modes", "standin,cpu", "--name", "small", STANDIN_MEMORY=str(2 << 20))

    assert done.returncode == 3
    assert (status(standin, "small/standin"), status(standin, "small/cpu")) == ("out-of-memory", "complete")


def test_devices_that_are_not_there_are_refused_in_a_line_each(standin: Standin, script: Path) -> None:
    modes = ("--mode", "standin:1", "--mode", "standin:7", "--mode", "cuda:3", "--mode", "cpu")
    done = standin("run", script, *modes, "--name", "there")

    assert done.returncode == 3
    assert (status(standin, "there/standin1"), status(standin, "there/cpu")) == ("complete", "complete")
    lines = [line for line in done.stderr.splitlines() if line.startswith("numdrift:")]
    assert any("'standin:7' is not available: torch finds standin:0, standin:1" in line for line in lines)
    assert any("'cuda:3'" in line for line in lines)
    assert "Traceback" not in done.stderr


def test_the_cpu_stays_the_cpu_where_a_device_is(standin: Standin, script: Path, tmp_path_factory: Any) -> None:
    ledger = tmp_path_factory.mktemp("ledger") / "all"
    done = standin("run", script, "--modes", "cpu", "--name", "here", STANDIN_LEDGER=str(ledger))

    assert done.returncode == 0, done.stderr
    assert not ledger.exists()


def test_ranks_have_a_device_each(standin: Standin) -> None:
    script = standin.folder / "ranks.py"
    script.write_text(RANKS)
    done = standin("run", script, "--modes", "standin", "--nproc", "2", "--name", "two")

    assert done.returncode == 0, done.stderr
    assert "standin: ranks agree: 4 parameters and their gradients have the same bits on all ranks" in done.stdout
    printed = (standin.folder / "runs" / "two" / "standin" / "stdout.log").read_text()
    other = (standin.folder / "runs" / "two" / "standin" / "rank1" / "stdout.log").read_text()
    assert printed.split()[2] == "standin:0" and other.split()[2] == "standin:1"
