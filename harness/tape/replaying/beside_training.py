"""Measure the noise and the fp64 values of a run's steps, from their tapes, while the training continues.

The program runs in a clean process beside the training, with `threads` threads. Replays with as many threads as the
training would take processors away from the training, and small ops gain little from more threads. The command is
`python bootstrap.py PACKAGE CONFIG numdrift.harness.tape.replaying.beside_training`; CONFIG is JSON:

    {"tapes": folder, "steps": [numbers], "replays": 8, "threads": 1, "ended": file}

A step is measured once the training has written its tape and a noise file, which says that the unchanged replay
reproduces the step bit for bit. If the training uses kernels that this process lacks, the replay in this process does
not reproduce the step. The run's own process, which has these kernels, then measures the noise.

The program ends after the last step, or when the process that started it ends. It also ends once the file `ended`
exists and every tape is measured: no tape is written after this file.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ...errors import JournalError
from ...torch_private.first_calls import settle_first_calls
from ..files.tape_file import exact_file, noise_file, read_tape, tape_file
from ..step_settings import settings_of_step
from ..tape import in_words
from .ensemble import measure_noise, write_noise
from .in_double import write_exact

LOOK_SECONDS = 0.05

YIELDING = 10
"""The niceness of the process. Training runs get the processors first, since everything waits for the longest run."""


def main(config: Path) -> int:
    """Measure the steps that a file names, print the failures, and return the exit code of the process."""
    try:
        request = json.loads(config.read_text(encoding="utf-8"))
        folder, remaining = Path(request["tapes"]), [int(step) for step in request["steps"]]
        replays, threads, ended = int(request["replays"]), int(request["threads"]), Path(request["ended"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        failure = JournalError(config, f"does not say what to measure: {in_words(error)}")
        print(f"numdrift: {failure}", file=sys.stderr)
        return failure.exit_code
    os.nice(YIELDING)
    settle_first_calls()
    parent, exit_code = os.getppid(), 0
    while remaining and os.getppid() == parent:
        is_last_look = ended.exists()  # checked before the tapes: no tape is written after this file
        ready = [step for step in remaining if awaits_replays(folder, step)]
        for step in ready:
            remaining.remove(step)
            try:
                measure(folder, step, replays, threads)
            except Exception as error:  # noqa: BLE001, the run's own process measures what fails here
                print(f"numdrift: step {step} could not be measured here: {in_words(error)}", file=sys.stderr)
                exit_code = JournalError.exit_code
        if is_last_look:
            break
        if not ready:
            time.sleep(LOOK_SECONDS)
    return exit_code


def awaits_replays(folder: Path, step: int) -> bool:
    """Return whether a step has a tape that replays bit for bit, and no replays with random rounding yet."""
    with suppress(OSError, ValueError):
        noise = json.loads(noise_file(folder, step).read_text(encoding="utf-8"))
        return bool(noise["equal"]) and not noise["replays"] and tape_file(folder, step).exists()
    return False


def measure(folder: Path, step: int, replays: int, threads: int) -> None:
    """Write the noise and the fp64 values of a step beside its tape.

    Raises JournalError for a damaged tape, OSError when nothing can be written.
    """
    path = tape_file(folder, step)
    stat_before = path.stat()
    tape = read_tape(path)
    with settings_of_step(tape.settings):
        noise = measure_noise(tape, replays, threads=threads)
    # A training run that starts again removes its folder, including the tape that was measured.
    stat_after = path.stat()
    if (stat_after.st_ino, stat_after.st_mtime_ns) != (stat_before.st_ino, stat_before.st_mtime_ns):
        return
    if noise.equal and noise.replays:
        write_noise(folder, noise)
    if not exact_file(path).exists():
        with settings_of_step({"threads": threads}):
            write_exact(tape, exact_file(path))
