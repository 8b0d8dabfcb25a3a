"""The noise of the step at which an answer points, measured on that step's own tape.

A step without a tape is scored by the noise of other steps. That is enough to clear the step, but not to send a person
to it: the step's own noise may be thousands of times as large.
"""

from __future__ import annotations

from ...drift.verdict import worst_of
from ...runs.recorded_run import RecordedRun
from ...runs.step_outcomes import tape_path
from ..evidence.explained_scores import Scores
from ..evidence.pair_evidence import evidence_for
from ..evidence.pair_scores import scores_of
from .laboratory import Laboratory
from .tapes_beside import measured_by_holder

MOST_MEASURED = 8
"""The largest number of steps whose noise is measured for one pair, one after the other."""


def pointed_step(scores: Scores) -> int | None:
    """Return the step at which the answer would point, if its noise was not measured on its own tape; else None.

    It is the first step beyond the threshold. If there is none, it is the step with the largest score, provided that
    the score is worth a look.
    """
    if not any(scored.taped for scored in scores.steps):  # no step of this reference replays
        return None
    beyond = (scored for scored in scores.steps if worst_of([scored]) > scores.threshold.fault)
    pointed = next(beyond, None) or max(scores.steps, key=lambda scored: worst_of([scored]))
    is_worth_a_look = worst_of([pointed]) > scores.threshold.inspect
    return pointed.step if is_worth_a_look and not pointed.taped else None


def measure_pointed_step(laboratory: Laboratory, reference: RecordedRun, run: RecordedRun) -> bool:
    """Have the worker with the reference's tapes measure the step at which the answer would point, and then the next
    such step, until the answer points at a measured one. Return whether a step was measured.

    Steps that have no tape are left to the round that records further tapes.
    """
    evidence, measured = evidence_for(reference, run), set[int]()
    holding = next(iter(evidence.taped), None)
    while holding is not None and len(measured) < MOST_MEASURED:
        step = pointed_step(scores_of(evidence))
        if step is None or step in measured or not tape_path(holding.path, step).exists():
            break
        if not measured_by_holder(laboratory, holding.path, step):
            break
        measured.add(step)
    return bool(measured)
