"""The step in which a differing batch is followed to its origin.

The other mode began this step in the reference's state, and both modes have a tape of it or can record one.
"""

from __future__ import annotations

from ...drift.setup.step_setup import compared_arguments, made_by_the_training
from ...drift.verdict import worst_of
from ...records.results.culprit import SETUP
from ...records.results.findings import PairFindings
from ...runs.step_outcomes import state_steps, tape_path
from .pair_evidence import PairEvidence


def batch_step(evidence: PairEvidence) -> int | None:
    """Return the step in which to follow a differing batch; None if no batch differs in a step that both modes began in
    the same state.

    The tape of step 0 begins when the first model is called. It lacks the earlier calls, so any other step is
    preferred. Next, a step that already has a tape in both modes is preferred, since it needs no further training run.
    """
    forced = evidence.forced
    if forced is None:
        return None
    reference_records = {record.step: record for record in evidence.a.journal.steps}
    # In these steps the reference's batch replaced a different batch of the script.
    differing = {int(event["step"]) for event in forced.journal.events("given")}
    for record in forced.journal.steps:
        reference_record = reference_records.get(record.step)
        if reference_record is not None and any(
            not equal for _, _, equal in compared_arguments(reference_record, record)
        ):
            differing.add(record.step)
    begun = {int(event["step"]) for event in forced.journal.events("resynced")}
    kept = {step for run in (evidence.a, *evidence.kept) for step in state_steps(run.path)}

    def order(step: int) -> tuple[bool, bool, int]:
        return step == 0, not tape_path(forced.path, step).exists(), step

    return min(differing & begun & kept, key=order, default=None)


def step_with_its_data(pair: PairFindings, evidence: PairEvidence) -> int | None:
    """Return a step after step 0 that is beyond rounding and whose tape shows how its data are computed, or None.

    Such a step is needed if the only finding is that step 0 starts from different data. If optimizers take turns, the
    returned step belongs to the same optimizer as step 0.
    """
    proven_culprits, forced = [culprit for culprit in pair.culprits if culprit.is_proven], evidence.forced
    data_only = all(culprit.kind == SETUP and culprit.op is None and culprit.step == 0 for culprit in proven_culprits)
    if forced is None or not proven_culprits or not data_only or pair.threshold is None:
        return None
    ended_by = {record.step: record.optimizer for record in evidence.a.journal.steps}
    beyond = [
        step_findings.step
        for step_findings in pair.steps
        if worst_of([step_findings]) > pair.threshold and not step_findings.explained
    ]
    others = [step for step in beyond if step and ended_by.get(step) == ended_by.get(0)]
    # A step of which both modes have a tape needs no further training run.
    return min(others, key=lambda step: (not tape_path(forced.path, step).exists(), step), default=None)


def own_arguments(evidence: PairEvidence) -> list[str]:
    """Return the names, as in tapes, of those arguments of the models that the training script computes itself."""
    return [f"argument {place}" for place in sorted(made_by_the_training(evidence.b, evidence.forced))]
