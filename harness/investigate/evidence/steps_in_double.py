"""The steps of a pair that the referee computed in double precision, and what they say about both modes."""

from __future__ import annotations

import functools

from ...drift.referee_accuracy import Accuracy, StepErrors, accuracy, step_errors
from ...drift.step_noise import read_noise
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import exact_facts, exact_steps, read_exact, read_outcome
from .file_version import FileVersion
from .pair_evidence import PairEvidence
from .same_state_steps import reference_outcomes, started_steps


def exact_run(evidence: PairEvidence, step: int) -> RecordedRun | None:
    """Return the run with the results of a step in double; None if they were not computed. Raises JournalError for
    damaged files."""
    return next((run for run in evidence.measured if _is_exact(run, step)), None)


def accuracy_of(evidence: PairEvidence) -> Accuracy | None:
    """Return the referee's result over all steps that have one; None if no step has. Raises JournalError for damaged
    files."""
    started, outcomes = started_steps(evidence), reference_outcomes(evidence)
    steps = []
    for run in evidence.measured:
        for step in exact_steps(run.path):
            if step in started and step in outcomes and _is_exact(run, step):
                a, b = (FileVersion.of_outcome(run_of_step[step].path, step) for run_of_step in (outcomes, started))
                steps.append(_errors_once(a, b, FileVersion.of_exact(run.path, step), step))
    return accuracy(
        [errors for errors in steps if errors is not None], evidence.a.manifest.label, evidence.b.manifest.label
    )


@functools.lru_cache(maxsize=1024)
def _errors_once(a: FileVersion, b: FileVersion, exact: FileVersion, step: int) -> StepErrors | None:
    """Return the errors of both modes in a step; the result is cached, since each judgement asks for it."""
    values = read_exact(exact.run, step)
    return None if values is None else step_errors(read_outcome(a.run, step), read_outcome(b.run, step), values, step)


def _is_exact(run: RecordedRun, step: int) -> bool:
    """Check whether a run has a step in double whose tape can be replayed to the step's own bits; otherwise it says
    nothing."""
    facts = exact_facts(run.path, step)
    if facts is None or facts.get("reason"):
        return False
    noise = read_noise(run.path, step)
    return noise is None or noise.equal
