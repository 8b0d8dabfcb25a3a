"""The very step from which on a mode drifts, where not every step was started from the reference's state.

A long training has too many states to keep. Between the last step that is within rounding and the first that is not, states are
kept in further rounds, evenly spaced as before, until the two are neighbours: 64 steps a round, so 262,144 in three.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..drift.verdict import worst_of
from ..records.experiment import Experiment
from ..runs.recorded_run import RecordedRun
from ..runs.run_layout import STATES
from .chosen_steps import MOST_FORCED, STATE_SHARE, bytes_of_state, evenly, selection
from .evidence import EvidenceFolder, evidence_for
from .investigation_plan import InvestigationPlan
from .laboratory import Laboratory, repeating
from .pair_scores import Scores, scores_of

MOST_ROUNDS = 3


def date_onset(
    laboratory: Laboratory, reference: RecordedRun, others: Sequence[RecordedRun], plan: InvestigationPlan
) -> None:
    """Start further steps from the reference's state until each pair's first significant step is known."""
    if plan.steps is not None:
        return
    for run in others:
        for number in range(MOST_ROUNDS):
            steps = steps_between(scores_of(evidence_for(reference, run)), _most(reference, plan))
            if not steps:
                break
            _round(laboratory, reference, run, number, steps, plan)


def steps_between(scores: Scores, most: int) -> list[int]:
    """At most so many steps between the first significant one and the scored one before it."""
    before = -1
    for one in scores.steps:
        if worst_of([one]) > scores.threshold.fault:
            between = list(range(before + 1, one.step))
            return (
                [between[place] for place in evenly(len(between), min(len(between), most))]
                if before >= 0
                else []
            )
        before = one.step
    return []


def _most(reference: RecordedRun, plan: InvestigationPlan) -> int:
    return int(max(2, min(MOST_FORCED, plan.state_budget // max(1, bytes_of_state(reference) * STATE_SHARE))))


def _round(
    laboratory: Laboratory,
    reference: RecordedRun,
    run: RecordedRun,
    number: int,
    steps: Sequence[int],
    plan: InvestigationPlan,
) -> None:
    chosen = selection(steps)
    a, b = reference.path.name, run.path.name
    ours, theirs = (Experiment("onset", *pair, detail=str(number)) for pair in ((a, b), (b, a)))
    laboratory.experiments(
        f"where {run.manifest.label} begins to drift, between step {steps[0] - 1} and {steps[-1] + 1}",
        [repeating(reference, ours, states=chosen, outcomes=chosen, until=steps[-1], timeout=plan.timeout)],
    )
    states = EvidenceFolder.of(reference).path / ours.name / STATES
    if states.is_dir():
        laboratory.experiments(
            "from the reference's state",
            [repeating(run, theirs, outcomes=chosen, resync=states, until=steps[-1], timeout=plan.timeout)],
        )
