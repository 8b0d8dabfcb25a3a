"""The steps of a pair that the referee computed in double precision, and what they say about both modes."""

from __future__ import annotations

from ...drift.referee_accuracy import Accuracy, accuracy, step_errors
from ...drift.step_noise import read_noise
from ...runs.mapped_tensors import TensorFile
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import exact_steps, read_exact, read_outcome
from .pair_evidence import PairEvidence
from .same_state_steps import reference_outcomes, started_steps


def exact_values(evidence: PairEvidence, step: int) -> TensorFile | None:
    """Return the results of a step in double; None if they were not computed. Raises JournalError for damaged files."""
    return next((exact for run in evidence.measured if (exact := _exact(run, step)) is not None), None)


def accuracy_of(evidence: PairEvidence) -> Accuracy | None:
    """Return the referee's result over all steps that have one; None if no step has. Raises JournalError for damaged
    files."""
    started, outcomes = started_steps(evidence), reference_outcomes(evidence)
    steps = []
    for run in evidence.measured:
        for step in exact_steps(run.path):
            exact = _exact(run, step)
            if step in started and step in outcomes and exact is not None:
                a, b = (read_outcome(run_of_step[step].path, step) for run_of_step in (outcomes, started))
                steps.append(step_errors(a, b, exact, step))
    return accuracy(steps, evidence.a.manifest.label, evidence.b.manifest.label)


def _exact(run: RecordedRun, step: int) -> TensorFile | None:
    """Return a step in double if its tape can be replayed to the step's own bits; otherwise it says nothing."""
    exact = read_exact(run.path, step)
    if exact is None or exact.facts.get("reason"):
        return None
    noise = read_noise(run.path, step)
    return exact if noise is None or noise.equal else None
