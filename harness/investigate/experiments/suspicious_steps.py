"""The steps whose drift is suspicious, replayed with stronger rounding: a discrete choice may explain the drift."""

from __future__ import annotations

from collections.abc import Sequence

from ...drift.verdict import worst_of
from ...records.results.experiment import Experiment
from ...records.run.step_files import steps_in
from ...records.run.step_selection import StepSelection
from ...runs.recorded_run import RecordedRun
from ...runs.run_layout import STATES
from ...runs.step_outcomes import noise_path, tape_path
from ...search import evenly
from ..evidence.explained_scores import Scores, suspicious_steps
from ..evidence.pair_evidence import EvidenceFolder, evidence_for
from ..evidence.pair_scores import scores_of
from .laboratory import Laboratory, Round, repeating
from .pointed_step import pointed_step
from .rounds import FROM_ITSELF, control, states_of, tapes_of
from .tapes_beside import measured_by_holder, recorded_noise

MOST_CONFIRMED = 8
"""The largest number of suspicious steps that are replayed with stronger rounding."""

ALWAYS_CONFIRMED = 2
"""The number of suspicious steps that are replayed in any case. If there are more, and they are most of the steps, no
kink explains them."""

EDGE_REPLAYS = 16
"""The number of replays of a suspicious step with stronger rounding."""


def look_closer(laboratory: Laboratory, reference: RecordedRun, run: RecordedRun) -> None:
    """Replay the suspicious steps with stronger rounding, in the worker that has the tapes. Stop after the first step
    that no discrete choice explains.

    That step shows a fault, whether or not the later ones can be explained.
    """
    evidence = evidence_for(reference, run)
    holding, scores = next(iter(evidence.taped), None), scores_of(evidence)
    if holding is None:
        return
    steps = [step for step in suspicious_steps(scores) if tape_path(holding.path, step).exists()]
    if not is_few(steps, scores):
        steps = [step for step in steps if noise_path(holding.path, step).exists()]
    for step in steps:
        if measured_by_holder(laboratory, holding.path, step, EDGE_REPLAYS):
            scores = scores_of(evidence)
            if any(
                step_score.step == step and worst_of([step_score]) > scores.threshold.fault
                for step_score in scores.steps
            ):
                return


def is_few(suspicious: Sequence[int], scores: Scores) -> bool:
    """Check whether a kink may explain these steps. A kink is rare; if most steps drift, it explains none of
    them."""
    return len(suspicious) <= ALWAYS_CONFIRMED or 2 * len(suspicious) <= len(scores.steps)


def suspicious(reference: RecordedRun, others: Sequence[RecordedRun]) -> Round:
    """Record a tape of each suspicious step, to replay it with stronger rounding and so find discrete choices.

    Also record one of the step at which the answer points.
    """
    wanted, looked_closer = set[int](), set[int]()
    for run in others:
        scores = scores_of(evidence_for(reference, run))
        looked_closer |= {step_score.step for step_score in scores.steps if step_score.looked_closer}
        drifting = suspicious_steps(scores)
        first = next(
            (step_score for step_score in scores.steps if worst_of([step_score]) > scores.threshold.fault), None
        )
        if first is not None and first.looked_closer:
            continue  # there is a fault in any case
        if is_few(drifting, scores):
            wanted |= {drifting[place] for place in evenly(len(drifting), min(len(drifting), MOST_CONFIRMED))}
        pointed = pointed_step(scores)
        wanted |= set() if pointed is None else {pointed}
    again = EvidenceFolder.of(reference).find(tapes_of(reference))
    if again is not None:  # the worker with this run's tapes has replayed some of the steps with stronger rounding
        noises = {step: recorded_noise(again.path, step) for step in looked_closer}
        looked_closer = {step for step, noise in noises.items() if noise is None or not noise.edge_replays}
    states = None
    repeated = control(reference)
    if repeated is not None and not repeated.repeatable:  # the new run on its own would reach different states
        states = reference.path / STATES if tapes_of(reference).kind == FROM_ITSELF else states_of(reference)
        kept = set(steps_in(states))
        wanted, looked_closer = wanted & kept, looked_closer & kept
    if not wanted:
        return Round("suspicious steps")
    # Include the steps of an earlier call: the new run replaces the earlier run, which had their tapes.
    last, steps = max(wanted | looked_closer), StepSelection.of(wanted | looked_closer)
    taped = Experiment("taped", reference.path.name, detail="0")
    changes = {"outcomes": steps, "tapes": steps, "until": last, "edge_replays": EDGE_REPLAYS}
    if states is not None:
        changes["resync"] = states
    return Round("suspicious steps", [repeating(reference, taped, **changes)])
