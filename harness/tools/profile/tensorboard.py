"""A log directory that TensorBoard's profile plug-in reads: a run for each mode."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from ...errors import UsageError
from ...records.profile_record import PROFILE, TRACE
from ...runs.recorded_run import RecordedRun


def write_log_directory(folder: Path, runs: Sequence[RecordedRun]) -> list[Path]:
    """Copy each run's trace into a folder of its mode, named as `torch.profiler.tensorboard_trace_handler`
    names it.

    A trace that such a folder holds of this run already is replaced. Raises UsageError.
    """
    written = []
    for run in runs:
        source = run.path / PROFILE / TRACE
        if not source.exists():
            continue
        target = folder / f"{run.path.parent.name}_{run.path.name}"
        try:
            target.mkdir(parents=True, exist_ok=True)
            for old in target.glob("*.pt.trace.json"):
                old.unlink()
            path = target / f"{_worker(source)}.{time.time_ns()}.pt.trace.json"
            shutil.copyfile(source, path)
        except OSError as error:
            raise UsageError(f"--tensorboard {folder} cannot be written: {error.strerror}") from None
        written.append(path)
    return written


def _worker(trace: Path) -> str:
    """Host and process, as the plug-in tells workers apart."""
    with trace.open(encoding="utf-8") as file:
        found = re.search(r'"pid": (\d+)', file.read(1 << 16))
    return f"{socket.gethostname()}_{found[1] if found else os.getpid()}"
