"""Steps of the kinds that have no resynced step: in a long training, few states are kept, and a rare kind of step may
have none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...drift.verdict import worst_of
from ...launch.batch_plan import BatchPlan
from ...records.results.experiment import Experiment
from ...records.run.step_selection import StepSelection
from ...runs.recorded_run import RecordedRun
from ...runs.run_layout import STATES
from ..evidence.pair_evidence import EvidenceFolder, evidence_for
from ..evidence.pair_scores import scores_of
from ..evidence.step_kinds import compared_kinds, one_of_each, step_kinds
from .chosen_steps import MOST_KINDS
from .laboratory import Laboratory, Round, begun_in, repeating


def steps_of_further_kinds(reference: RecordedRun, run: RecordedRun, first: int | None) -> tuple[int, ...]:
    """Return a step of each kind that has no compared step; `first` is the first differing step of the pair.

    Return none if a step is beyond the threshold, because there is a fault in any case. Also return none if there are
    more than MOST_KINDS such kinds: for instance, if each batch has a shape of its own.
    """
    scores = scores_of(evidence_for(reference, run))
    if not scores.steps or worst_of(scores.steps) > scores.threshold.fault:
        return ()
    kinds, scored = step_kinds(reference, run), {scored.step for scored in scores.steps}
    left = [kind for kind, found in zip(kinds, compared_kinds(kinds, scored, first), strict=True) if not found.compared]
    able = {step for kind in left for step in kind.steps}
    return one_of_each(left, able, (), MOST_KINDS) if len(left) <= MOST_KINDS else ()


def compare_further_kinds(
    laboratory: Laboratory, reference: RecordedRun, others: Sequence[RecordedRun], firsts: Mapping[Path, int | None]
) -> None:
    """Train the reference again to keep its states of these steps, and begin the mode's steps in these states.

    `firsts` has the first differing step of each mode, by the path of the mode's run.
    """
    for run in others:
        steps = sorted(steps_of_further_kinds(reference, run, firsts[run.path]))
        if not steps:
            continue
        a, b = reference.path.name, run.path.name
        own, kept = Experiment("kinds", a, b), StepSelection.of(steps)
        title = f"kinds of steps that were not compared yet, in {run.manifest.label}"
        plan: BatchPlan = repeating(reference, own, states=kept, outcomes=kept, until=steps[-1])
        laboratory.make(Round(title, [plan]))
        states = EvidenceFolder.of(reference).path / own.name / STATES
        if states.is_dir():
            laboratory.make(Round(title, [begun_in(states, run, Experiment("kinds", b, a), steps)]))
