"""Which side of a pair is nearer to the step in double."""

from __future__ import annotations

from ..drift.referee_accuracy import Accuracy, accuracy, step_errors
from ..drift.step_noise import Noise, read_noise
from ..runs.step_outcomes import exact_steps, outcome_steps, read_exact, read_outcome
from .evidence import PairEvidence


def accuracy_of(evidence: PairEvidence) -> Accuracy | None:
    """The referee's word over all steps that have one; None without. Raises JournalError for damaged files."""
    started = {step: run for run in evidence.started for step in outcome_steps(run.path)}
    if not started:
        return None
    steps = []
    for run in evidence.taped:
        for step in exact_steps(run.path):
            exact = read_exact(run.path, step)
            if step not in started or exact is None or exact.facts.get("reason"):
                continue
            noise = read_noise(run.path, step) or Noise(step, 0, {})
            if noise.equal:
                a, b = read_outcome(run.path, step), read_outcome(started[step].path, step)
                steps.append(step_errors(a, b, exact, noise))
    return accuracy(steps, evidence.a.manifest.label, evidence.b.manifest.label)
