"""The verdict on a pair of runs, and the sentence that explains it.

A verdict that makes a comparison void takes precedence over verdicts about the comparison's result:

    failed > nondeterministic > different-setup > nonfinite > identical > beyond-rounding > rounding

There is one exception: if a step before the first value that is not finite is beyond the threshold, the verdict is
beyond-rounding, because that step comes first in time.

A pair that differs and has no scored step is undecided: it has no verdict, but a reason and a remedy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..records.results.findings import StepFindings, Verdict
from .calibration import Threshold
from .nonfinite import Nonfinite
from .referee_accuracy import Accuracy
from .repetition import Repetition
from .setup_difference import SetupDifference
from .step_score import StepScore

WITHOUT_EFFECT = ("script", "arguments", "autocast", "generator")
"""Kinds of set-up differences that had no effect if every recorded bit is equal."""

REMEDY = "which starts steps of both modes from the same state"


NOWHERE_KNOWN = (
    "the difference is neither in parameters and buffers, nor in the optimizer's state, nor in the script's own "
    "tensors: look for other state that the script carries from step to step"
)

FARTHER = math.log2(1e4)
"""The log2 of how many times farther from double precision one side may be, if the drift is rounding.

Rounding leaves both sides about equally far. The largest factor that was seen without a fault is 59, where eager mode
rounds to bfloat16 and compiled code keeps float32.
"""

SAME_DRAWS = ("use the same seeds in both", "make both draw equally often")
"""The ways to make two modes draw the same random numbers."""


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """The evidence about one pair; `a` is the reference's name, `b` that of the other run.

    failed: sentences about runs that failed (a loss that is not finite is not a failure)
    identical, first_differing_step: the comparison of the runs, each trained from its own state
    steps: the scores of steps that both modes took from one state
    unscored: why there are no scores
    stateless: why no command can produce scores
    command: the command that produces scores
    common_steps: the number of steps that both have if one run was cut short, else None
    drawing: how to make the two modes draw the same random numbers
    recording: how far recording of its ops moves the reference, as a multiple of the rounding noise; 0 if it does not
    """

    a: str
    b: str
    threshold: Threshold
    identical: bool
    first_differing_step: int | None = None
    failed: tuple[str, ...] = ()
    repetitions: tuple[Repetition, ...] = ()
    setup: tuple[SetupDifference, ...] = ()
    nonfinite: Nonfinite | None = None
    steps: tuple[StepScore, ...] = ()
    unscored: str = ""
    stateless: str = ""
    command: str = "numdrift investigate"
    common_steps: int | None = None
    drawing: str = " and ".join(SAME_DRAWS)
    recording: float = 0.0


def decide(evidence: VerdictEvidence) -> Verdict:
    """Return the verdict on a pair."""
    verdict = _void(evidence) or _beyond_rounding(evidence) or _undecided(evidence) or _rounding(evidence)
    worst = _worst(evidence.steps)
    significant = _significant(evidence)
    return replace(
        verdict,
        score=worst.score if worst else None,
        tensor=worst.tensor if worst else "",
        first_significant_step=significant[0].step if significant else None,
        notes=_notes(evidence, verdict),
    )


def unless_contradicted(verdict: Verdict, referee: Accuracy | None, a: str, b: str) -> Verdict:
    """Return the verdict, undecided if it is `rounding` although one side is orders of magnitude farther from the step
    in double. Where random rounding makes a step jump, as at a branch cut, its noise may hide a fault."""
    if verdict.word != "rounding" or verdict.score is None or referee is None or referee.closer == "equal":
        return verdict
    if abs(referee.median) < FARTHER or "ill-conditioned" in verdict.text:
        return verdict
    better, worse = (a, b) if referee.closer == "a" else (b, a)
    reason = (
        f"the drift is within the noise ({verdict.score:.3g} times), but the typical error of {worse} is "
        f"{2.0 ** min(abs(referee.median), 1000.0):.2g} times that of {better}, compared with the step in double: "
        "rounding leaves both equally far from it, so random rounding may make this step jump, and hide a fault; look "
        f"at its ops (numdrift localize --step {verdict.step} --suspects)"
    )
    return replace(_no_word(reason, verdict.step), score=verdict.score, tensor=verdict.tensor, notes=verdict.notes)


def worst_of(steps: Sequence[StepScore] | Sequence[StepFindings]) -> float:
    """Return the largest score of some steps; 0 if there are none.

    The score is infinite if there are differing integers that rounding never changed.
    """
    return max((math.inf if step.discrete else step.score for step in steps), default=0.0)


def _void(evidence: VerdictEvidence) -> Verdict | None:
    """Return a verdict that does not depend on scores; None if there is none.

    The checks are in the order of the verdicts' precedence.
    """
    if evidence.failed:
        return Verdict("failed", f"failed: {'; '.join(evidence.failed)}")
    limit = evidence.threshold.fault
    broken = [repetition for repetition in evidence.repetitions if not repetition.is_noise(limit)]
    if broken:
        reasons = "; ".join(f"{repetition.text} ({repetition.remedy})" for repetition in broken)
        return Verdict("nondeterministic", f"nondeterministic: {reasons}", step=broken[0].step)
    causes = [difference for difference in evidence.setup if difference.counts]
    if evidence.identical:
        causes = [difference for difference in causes if difference.kind not in WITHOUT_EFFECT]
    if causes:
        others = len(causes) - 1
        more = f"; and {others} more difference{'s' if others > 1 else ''}" if others else ""
        text = f"different-setup: {causes[0].text}{more}"
        if causes[0].kind == "generator":
            text += f"; {evidence.drawing}"
        return Verdict("different-setup", text, step=causes[0].step)
    nonfinite = evidence.nonfinite
    if nonfinite is not None and nonfinite.first is not None and not _drifts_before(evidence, nonfinite.first.step):
        return Verdict("nonfinite", f"nonfinite: {nonfinite.text}", step=nonfinite.first.step)
    if evidence.identical:
        of = "" if evidence.common_steps is None else f" in their {evidence.common_steps:,} common steps"
        text = f"identical: everything that {evidence.a} and {evidence.b} recorded{of} has the same bits"
        return Verdict("identical", text)
    return None


def _drifts_before(evidence: VerdictEvidence, number: int) -> bool:
    """Check whether a step before this one is beyond the threshold: then that step is where the difference begins."""
    return any(step.step < number for step in _significant(evidence))


def _beyond_rounding(evidence: VerdictEvidence) -> Verdict | None:
    significant = _significant(evidence)
    worst = _worst(significant)
    if worst is None:
        return None
    # The worst step determines the score; the first significant step is where to look for the cause.
    first, limit = significant[0], evidence.threshold.fault
    if worst.score > limit:
        why = f": {worst.why}" if math.isinf(worst.score) and worst.why else ""
        text = (
            f"{_largest(evidence.steps, worst)} ({worst.tensor}, step {worst.step}{why}), and more than "
            f"{limit:.3g} is a fault; the first such step is {first.step}"
        )
    else:
        names = ", ".join(first.discrete[:3]) + (" and others" if len(first.discrete) > 3 else "")
        text = f"integers differ, although rounding never changes them ({names}, step {first.step})"
    if evidence.nonfinite is not None and evidence.nonfinite.first is not None:
        text += f"; afterwards, in {evidence.nonfinite.text}"
    return Verdict("beyond-rounding", f"beyond-rounding: {text}", step=first.step)


def _undecided(evidence: VerdictEvidence) -> Verdict | None:
    first = evidence.first_differing_step
    since = "" if first is None else f" from step {first} on"
    if not evidence.steps:
        reason = evidence.unscored or "no step was computed by both modes from the same state"
        if evidence.stateless:
            return _no_word(f"the runs differ{since}, and {evidence.stateless}", first)
        return _no_word(f"the runs differ{since}, and {reason}: run `{evidence.command}`, {REMEDY}", first)
    # Without measured noise z is an upper bound: a z below the threshold clears a step, a z above it decides nothing.
    doubtful = _worst([step for step in evidence.steps if not step.replays and not step.ill_conditioned])
    if doubtful is not None and doubtful.score > evidence.threshold.fault:
        reason = (
            f"step {doubtful.step} drifts by {doubtful.score:.3g} times the rounding of its "
            f"results ({doubtful.tensor}), "
            f"but the rounding noise of {evidence.a} was not measured"
        )
        return _no_word(f"{reason}: run `{evidence.command}`, {REMEDY} and measures the noise", doubtful.step)
    if worst_of(evidence.steps) == 0.0 and 0.0 < evidence.recording <= evidence.threshold.fault:
        text = (
            f"{evidence.b} has the bits that {evidence.a} has while its ops are recorded; otherwise the results of "
            f"{evidence.a} are {evidence.recording:.2g} times the rounding noise away from these"
        )
        return Verdict("rounding", f"rounding: {text}", step=first)
    if worst_of(evidence.steps) == 0.0 and not any(
        difference.kind == "initial" and difference.harmless for difference in evidence.setup
    ):
        looked = {step.step for step in evidence.steps}
        remedy = (
            f"look at step {first} (--steps {first})" if first is not None and first not in looked else NOWHERE_KNOWN
        )
        reason = f"the runs differ{since}, but every step that both modes computed from the same state has equal bits"
        return _no_word(f"{reason}: {remedy}", first)
    return None


def _no_word(undecided: str, step: int | None) -> Verdict:
    return Verdict(None, f"undecided: {undecided}", step=step, undecided=undecided)


def _rounding(evidence: VerdictEvidence) -> Verdict:
    worst = _worst(evidence.steps)
    threshold = evidence.threshold
    if worst is None or worst.score == 0.0:
        text = "the runs start a few ULP apart, and from the same state both modes compute the same bits"
        return Verdict("rounding", f"rounding: {text}", step=evidence.first_differing_step)
    inspect = worst.score > threshold.inspect
    if worst.score > threshold.fault and worst.ill_conditioned:
        text = f"{_largest(evidence.steps, worst)} ({worst.tensor}, step {worst.step}), all of it caused by rounded "
        text += "inputs of ill-conditioned ops"
        return Verdict("rounding", f"rounding: {text}", step=worst.step, inspect=True)
    text = (
        f"{_largest(evidence.steps, worst)} ({worst.tensor}, step {worst.step}; {threshold.fault:.3g} would be a fault"
        + (f", and more than {threshold.inspect:.3g} is worth a look)" if inspect else ")")
    )
    return Verdict("rounding", f"rounding: {text}", step=worst.step, inspect=inspect)


def _significant(evidence: VerdictEvidence) -> list[StepScore]:
    """Return the steps beyond the threshold.

    If the noise was not measured, only a step with an infinite score is beyond the threshold. A step whose drift is due
    to ill-conditioned ops is never beyond it.
    """
    return [
        step
        for step in sorted(evidence.steps, key=lambda step: step.step)
        if (step.score > evidence.threshold.fault or step.discrete)
        and (step.replays or math.isinf(step.score))
        and not step.ill_conditioned
    ]


def _worst(steps: Sequence[StepScore]) -> StepScore | None:
    """Return the step with the largest score; if several steps have it, the first of them."""
    return max(sorted(steps, key=lambda step: step.step), key=lambda step: step.score, default=None)


def _largest(steps: Sequence[StepScore], worst: StepScore) -> str:
    of = "the drift of the one step that was scored" if len(steps) == 1 else f"the largest drift of {len(steps)} steps"
    if math.isinf(worst.score):
        return f"{of} is beyond any rounding"
    return f"{of} is {worst.score:.3g} times the reference's own rounding noise"


def _notes(evidence: VerdictEvidence, verdict: Verdict) -> tuple[str, ...]:
    """Return notes on the verdict for its reader."""
    causes = [] if verdict.word == "different-setup" else [item for item in evidence.setup if item.counts]
    notes = [item.text for item in causes]
    notes += [f"{item.text} (rounding)" for item in evidence.setup if item.harmless == "rounding"]
    notes += [
        f"{item.text}; nothing is drawn from it afterwards" for item in evidence.setup if item.harmless == "unused"
    ]
    nonfinite = evidence.nonfinite
    is_in_text = verdict.word == "beyond-rounding" and nonfinite is not None and nonfinite.first is not None
    if nonfinite is not None and verdict.word != "nonfinite" and not is_in_text:
        notes.append(nonfinite.text)
    significant = _significant(evidence)
    if significant and not any(step.taped for step in significant):
        notes.append("the noise of the steps beyond the threshold was not measured on their tapes")
    worst = _worst(evidence.steps)
    if verdict.inspect and worst is not None and worst.replays and not worst.taped:
        notes.append(f"the noise of step {worst.step} was not measured on its own tape")
    decided = verdict.word in ("rounding", "beyond-rounding", None)
    if decided and evidence.steps and not evidence.threshold.calibrated:
        notes.append(f"the threshold {evidence.threshold.fault:.3g} is {evidence.threshold.provenance}")
    return tuple(notes)
