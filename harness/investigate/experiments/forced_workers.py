"""The workers of the runs that began chosen steps in the reference's state."""

from __future__ import annotations

from collections.abc import Sequence

from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import noise_steps, tape_steps
from ..evidence.kept_repetition import controls_of
from ..evidence.pair_evidence import evidence_for
from .laboratory import Laboratory
from .tapes_beside import settle_tape


def settle_forced(laboratory: Laboratory, reference: RecordedRun, run: RecordedRun) -> None:
    """Settle the taped steps of a mode that does not repeat."""
    evidence = evidence_for(reference, run)
    forced, controls = evidence.forced, controls_of(evidence)
    if forced is not None and "b" in controls and not controls["b"][2].repeatable:
        for step in tape_steps(forced.path):
            settle_tape(laboratory, forced.path, step)


def end_without_tapes(laboratory: Laboratory, reference: RecordedRun, others: Sequence[RecordedRun]) -> None:
    """Let the workers end that have no step's tape: they can be asked nothing, and a large model takes a lot of memory.

    The tape of a mode that takes long to record is recorded later, in another process, for the step in question.
    """
    forced = [evidence_for(reference, run).forced for run in others]
    for run in forced:
        if run is not None and not tape_steps(run.path) and not noise_steps(run.path):
            laboratory.workers.let_go(run.path)
