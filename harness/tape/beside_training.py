"""Measures the steps of a run while it goes on training: their noise and their values in double, from their tapes.

It runs in a clean process beside the training, in one thread where `threads` says so: replays in as many threads as
the training has would take its processors from it, and small ops gain little by them. It is started as
`python bootstrap.py PACKAGE CONFIG numdrift.harness.tape.beside_training`; CONFIG is JSON:

    {"tapes": folder, "steps": [numbers], "replays": 8, "threads": 1, "ended": file}

A step is measured as soon as its training has left its tape and said in the noise file that the unchanged replay gives
the step's own bits. Where it does not in this process, for the training has kernels of its own, the noise is left to
the process that has them. It ends with the last of the steps, with the process that has started it, or once the file
`ended` says that no further tape comes, and those that came are measured.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from ..errors import JournalError
from ..torch_private.first_calls import settle_first_calls
from .ensemble import in_words, measure_noise, write_noise
from .in_double import write_exact
from .step_settings import settings_of_step
from .tape_file import exact_file, noise_file, read_tape, tape_file

LOOK_SECONDS = 0.05

YIELDING = 10
"""The niceness: whoever trains beside has the processors first, for all wait for the longest training."""


def main(config: Path) -> int:
    """Measure the steps that a file names; gives the exit code for the process, having printed what failed."""
    try:
        told = json.loads(config.read_text(encoding="utf-8"))
        folder, left = Path(told["tapes"]), [int(step) for step in told["steps"]]
        replays, threads, ended = int(told["replays"]), int(told["threads"]), Path(told["ended"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        failure = JournalError(config, f"does not say what is to be measured: {in_words(error)}")
        print(f"numdrift: {failure}", file=sys.stderr)
        return failure.exit_code
    os.nice(YIELDING)
    settle_first_calls()
    parent, exit_code = os.getppid(), 0
    while left and os.getppid() == parent:
        is_last_look = ended.exists()  # asked for before the tapes are: none comes between the two
        ready = [step for step in left if awaits_replays(folder, step)]
        for step in ready:
            left.remove(step)
            try:
                measure(folder, step, replays, threads)
            except Exception as error:  # noqa: BLE001, what fails here is measured by the run's own process
                print(f"numdrift: step {step} could not be measured here: {in_words(error)}", file=sys.stderr)
                exit_code = JournalError.exit_code
        if is_last_look:
            break
        if not ready:
            time.sleep(LOOK_SECONDS)
    return exit_code


def awaits_replays(folder: Path, step: int) -> bool:
    """Whether the step has a tape that gives its own bits again, and has not been replayed with random rounding."""
    with suppress(OSError, ValueError):
        noise = json.loads(noise_file(folder, step).read_text(encoding="utf-8"))
        return bool(noise["equal"]) and not noise["replays"] and tape_file(folder, step).exists()
    return False


def measure(folder: Path, step: int, replays: int, threads: int) -> None:
    """Raises JournalError for a damaged tape, OSError where nothing can be written."""
    path = tape_file(folder, step)
    read = path.stat()
    tape = read_tape(path)
    with settings_of_step(tape.settings):
        found = measure_noise(tape, replays, threads=threads)
    # A training that is made anew takes its folder away, with the tape that was measured.
    now = path.stat()
    if (now.st_ino, now.st_mtime_ns) != (read.st_ino, read.st_mtime_ns):
        return
    if found.equal and found.replays:
        write_noise(folder, found)
    if not exact_file(path).exists():
        with settings_of_step({"threads": threads}):
            write_exact(tape, exact_file(path))
