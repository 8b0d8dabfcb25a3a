"""The step in which a batch that differs can be followed to what makes it differ: one that the other mode has begun in
the reference's state, and of which both have, or can be had, a tape."""

from __future__ import annotations

from ..drift.setup_difference import compared_arguments, made_by_the_training
from ..drift.verdict import worst_of
from ..records.culprit import SETUP
from ..records.findings import PairFindings
from ..runs.step_outcomes import state_steps, tape_path
from .evidence import PairEvidence


def batch_step(evidence: PairEvidence) -> int | None:
    """The step to look into, None where no batch differs in a step that began in one state.

    The tape of step 0 begins when the first model is called: what was made before lies on none, so another step is
    better. One that both have a tape of takes no further training.
    """
    forced = evidence.forced
    if forced is None:
        return None
    ours = {record.step: record for record in evidence.a.journal.steps}
    # Where the reference's batch was put in place, this is what the script would have given
    differing = {int(event["step"]) for event in forced.journal.events("given")}
    for record in forced.journal.steps:
        own = ours.get(record.step)
        if own is not None and any(not equal for _, _, equal in compared_arguments(own, record)):
            differing.add(record.step)
    begun = {int(event["step"]) for event in forced.journal.events("resynced")}
    kept = {step for run in (evidence.a, *evidence.kept) for step in state_steps(run.path)}

    def order(step: int) -> tuple[bool, bool, int]:
        return step == 0, not tape_path(forced.path, step).exists(), step

    return min(differing & begun & kept, key=order, default=None)


def step_with_its_data(pair: PairFindings, evidence: PairEvidence) -> int | None:
    """Where all that is found is that step 0 starts from other data, another step beyond rounding, on whose tape is
    what makes them; None where there is none. Where optimizers take turns, it is one of the same."""
    found, forced = [one for one in pair.culprits if one.is_proven], evidence.forced
    data_only = all(one.kind == SETUP and one.op is None and one.step == 0 for one in found)
    if forced is None or not found or not data_only or pair.threshold is None:
        return None
    ended_by = {one.step: one.optimizer for one in evidence.a.journal.steps}
    beyond = [one.step for one in pair.steps if worst_of([one]) > pair.threshold and not one.explained]
    others = [step for step in beyond if step and ended_by.get(step) == ended_by.get(0)]
    # one that both have a tape of takes no further training
    return min(others, key=lambda step: (not tape_path(forced.path, step).exists(), step), default=None)


def own_arguments(evidence: PairEvidence) -> list[str]:
    """The arguments of the models that the training makes itself, as tapes name them."""
    return [f"argument {place}" for place in sorted(made_by_the_training(evidence.b, evidence.forced))]
