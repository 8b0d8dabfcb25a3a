"""The localizer: a clean process that reads both tapes of a step, asks both workers, and writes `localization.json`."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...launch.guest_process import Guest, environment, preloadable
from ...records.codec import json_text
from ...records.results.localization_record import LocalizerConfig
from ...runs.recorded_run import RecordedRun
from ..evidence.pair_scores import spec_of
from ..experiments.laboratory import Laboratory
from .question import Inquiry

LOCALIZER = "numdrift.harness.localize.localizer_process"
PATIENCE = 24 * 3600.0
"""The time in seconds that a localization may take."""


def expect_localizer(laboratory: Laboratory, reference: RecordedRun, run: RecordedRun) -> None:
    """Preload the modules for a localizer that will run alone."""
    laboratory.processes.expect([_guest(Path(), reference, run, alone=True)])


def _guest(config: Path, reference: RecordedRun, run: RecordedRun, *, alone: bool) -> Guest:
    variables = environment(spec_of(reference), os.environ, alone=alone)  # with as many threads as the reference
    return Guest(config, variables, module=LOCALIZER, imports=preloadable(spec_of(reference), spec_of(run)))


@contextmanager
def localizer(inquiry: Inquiry, config: LocalizerConfig, laboratory: Laboratory, *, alone: bool) -> Iterator[None]:
    """Run the localizer while the context's body runs, and report its progress.

    On exit, wait until the localizer ends. Kill it if it takes as long as the budget of the whole search, or longer
    than PATIENCE seconds, or if the body raises.
    """
    path = config.folder / "localizer.json"
    path.write_text(json_text(config, indent=1), encoding="utf-8")
    guest = _guest(path, inquiry.evidence.a, inquiry.evidence.b, alone=alone)
    progress, (reading, writing) = laboratory.progress, os.pipe()
    output = os.fdopen(reading, encoding="utf-8", errors="replace")
    try:
        with (config.folder / "localizer.log").open("wb") as errors:
            process = laboratory.processes.start(guest, writing, errors.fileno())
    finally:
        os.close(writing)

    def pass_on() -> None:
        for line in output:
            progress.say(f"  {inquiry.evidence.b.manifest.label}: {line.rstrip()}")

    # Read continuously, because a process blocks when its pipe is full.
    passing = threading.Thread(target=pass_on, daemon=True)
    passing.start()
    try:
        yield
        patience = min(PATIENCE, laboratory.search.limit)
        process.wait(patience)
    except subprocess.TimeoutExpired:
        progress.say(f"step {config.step} could not be localized: no answer came within {patience:.0f} s")
        laboratory.search.leave_out(inquiry.evidence.b.path, f"the ops of step {config.step}")
    finally:
        process.kill()
        process.wait()
        passing.join()
        output.close()
