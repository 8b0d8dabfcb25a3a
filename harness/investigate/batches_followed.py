"""The step in which a batch that differs can be followed to what makes it differ: one that the other mode has begun in
the reference's state, and of which both have, or can be had, a tape."""

from __future__ import annotations

from ..drift.setup_difference import compared_arguments, made_by_the_training
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


def own_arguments(evidence: PairEvidence) -> list[str]:
    """The arguments of the models that the training makes itself, as tapes name them."""
    return [f"argument {place}" for place in sorted(made_by_the_training(evidence.b, evidence.forced))]
