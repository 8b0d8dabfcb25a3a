"""The steps that both modes of a pair began in the same state, and the runs that kept their outcomes."""

from __future__ import annotations

from ...records.run.step_files import CARRIED, EVALUATION
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import outcome_steps, read_state, state_steps
from .pair_evidence import PairEvidence


def started_steps(evidence: PairEvidence) -> dict[int, RecordedRun]:
    """Map each step that the other mode began in the reference's state to the run that has its outcome.

    A step also counts if the mode reached the reference's state without being put into it, as in the first differing
    step. The states that both runs kept of such a step are equal.
    """
    run_of_step: dict[int, RecordedRun] = {}
    for run in evidence.started:
        put = {int(event["step"]) for event in run.journal.events("resynced")}
        for step in outcome_steps(run.path):
            if step in put or _starts_in_same_state(evidence, run, step):
                run_of_step.setdefault(step, run)
    return run_of_step


def _starts_in_same_state(evidence: PairEvidence, run: RecordedRun, step: int) -> bool:
    states = []
    for runs in ((evidence.a, *evidence.kept), (evidence.b, run)):
        having = next((candidate for candidate in runs if step in state_steps(candidate.path)), None)
        if having is None:
            return False
        states.append(read_state(having.path, step))
    left, right = (
        {key: tensor for key, tensor in state.tensors.items() if not key.startswith(("generator ", EVALUATION))}
        for state in states
    )
    # What the script itself carries is looked for, so one of the runs may lack it.
    of_one = [key for key in left.keys() ^ right.keys() if key.startswith(CARRIED)]
    left, right = ({key: tensor for key, tensor in side.items() if key not in of_one} for side in (left, right))
    return left.keys() == right.keys() and all(
        tensor.dtype == right[key].dtype
        and tensor.shape == right[key].shape
        and tensor.tobytes() == right[key].tobytes()
        for key, tensor in left.items()
    )


def reference_outcomes(evidence: PairEvidence) -> dict[int, RecordedRun]:
    """Map each step to the run that has the reference's outcome of it."""
    # Reversed, so that the first of several runs with a step replaces the others.
    return {step: run for run in reversed(evidence.kept) for step in outcome_steps(run.path)}
