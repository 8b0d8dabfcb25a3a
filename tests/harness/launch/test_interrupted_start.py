"""Ctrl-C while the first process is being started, for instance while a preloaded process imports torch."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numdrift.harness.launch.batch_plan import BatchPlan, check_plan
from numdrift.harness.launch.execute_batch import execute_together
from numdrift.harness.launch.guest_process import Guest, GuestProcess
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.runs.run_layout import InvestigationFolder


class Reported:
    def __getattr__(self, name: str) -> Any:
        return lambda *facts: None


class InterruptedProcesses:
    def expect(self, guests: Sequence[Guest]) -> None:
        pass

    def start(self, guest: Guest, stdout: int, stderr: int, *, stdin: int | None = subprocess.DEVNULL) -> GuestProcess:
        raise KeyboardInterrupt


def test_nothing_that_prevents_the_same_command_is_left(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    plan = BatchPlan(script, [parse_mode("cpu"), parse_mode("other=cpu")], InvestigationFolder(tmp_path / "runs/train"))

    result = execute_together([plan], Reported(), 1, InterruptedProcesses())

    assert result.interrupted and not result.runs
    assert [path.name for path in (tmp_path / "runs/train").iterdir()] == []
    check_plan(plan)
