"""The fp64 referee: tapes replayed in double, in a clean process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..launch.guest_process import guest_command
from ..runs.recorded_run import RecordedRun
from .evidence import EvidenceFolder
from .laboratory import Progress

REFEREE = "numdrift.harness.tape.referee_process"
LONGEST = 600.0
"""Seconds after which the referee is given up."""


def run_referee(folder: EvidenceFolder, runs: Sequence[RecordedRun], progress: Progress) -> None:
    """Write the exact values beside each tape that has none yet. A failure is said, and the verdict goes
    without."""
    tapes = [tape for run in runs for tape in sorted((run.path / "tapes").glob("tape-*.safetensors"))]
    missing = [tape for tape in tapes if not _exact(tape).exists()]
    if not missing:
        return
    config, log = folder.path / "referee.json", folder.path / "referee.log"
    config.write_text(json.dumps({"tapes": [str(tape.absolute()) for tape in missing], "kernels": []}))
    command = guest_command(config, module=REFEREE)
    try:
        with log.open("wb") as written:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                env={"PYTHONHASHSEED": "0", **os.environ},
                timeout=LONGEST,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        progress.say(f"the fp64 referee gave no answer: {error}")
        return
    if done.returncode:
        progress.say(f"the fp64 referee failed (exit code {done.returncode}): {_last_line(log)}; all of it is in {log}")


@contextmanager
def referee_beside(folder: EvidenceFolder, runs: Sequence[RecordedRun], progress: Progress) -> Iterator[None]:
    """The referee at work beside what is done in this context, which ends with it."""
    beside = threading.Thread(target=run_referee, args=(folder, runs, progress))
    beside.start()
    try:
        yield
    finally:
        beside.join()


def _exact(tape: Path) -> Path:
    return tape.with_name(tape.name.replace("tape-", "exact-", 1))


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
