"""The share of a pair's drift that its proven causes account for, and a sentence about the rest. If a pair differs,
either its causes account for all of the drift, or there is such a sentence.

    0.998, ""                                          the drift disappears if the causes are swapped out together
    0.83,  "the causes explain 83 % of the drift of step 3; what is left (z 1.2) ..."
    None,  "no cause was looked for: step 3: _embedding_bag is not replayed"
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...records.results.culprit import MARK_STEP, WEIGHTS, Culprit
from ...records.results.findings import Verdict
from ...records.results.localization_record import LeftOver, Localization
from ..evidence.explained_scores import Scores, other_choices
from ..evidence.pair_evidence import PairEvidence
from ..questions.ops import AGAINST_ONE
from ..questions.question import proven

ACCOUNTED = ("rounding", "beyond-rounding", "nonfinite", None)
"""Verdicts that report a drift, and None for an undecided pair."""

ALL = 0.995
"""From this share on, the rest is not mentioned: the share rounds to 100 %."""

MOST_NAMED = 4


def accounted(
    evidence: PairEvidence,
    verdict: Verdict,
    scores: Scores,
    localized: Sequence[Localization],
    culprits: Sequence[Culprit],
) -> tuple[float | None, str]:
    """Return the share of the drift that disappears if all proven causes are swapped out (None if it is unknown), and a
    sentence about the rest and about what was excluded.

    The sentence is empty if all of the drift disappears. A pair without a drift has no share and no sentence.
    """
    if verdict.word not in ACCOUNTED:
        return None, ""
    proven_culprits = proven(verdict.word, culprits)
    taken_apart = [localization for localization in localized if not localization.reason]
    if proven_culprits and all(culprit.is_way for culprit in proven_culprits):
        return _of_a_way(proven_culprits[0], localized)
    if not taken_apart:
        return None, _not_looked(evidence, verdict, scores, localized)
    # Of several steps, choose the one whose causes are listed first, else the one that the verdict is about, else the
    # last one.
    steps = [
        next((culprit.step for culprit in culprits if culprit.is_proven), None),
        verdict.step,
        taken_apart[-1].step,
    ]
    chosen = next(localization for step in steps for localization in taken_apart if localization.step == step)
    return chosen.left.explained, _what_is_left(chosen, verdict, scores, evidence.b.manifest.label)


def _what_is_left(localization: Localization, verdict: Verdict, scores: Scores, b: str) -> str:
    left, threshold, proven_culprits = (
        localization.left,
        scores.threshold.fault,
        [culprit for culprit in localization.culprits if culprit.is_proven],
    )
    others = len(localization.op_by_op_differs)
    values, differ = ("1 value", "differs") if others == 1 else (f"{others} values", "differ")
    lazily = f"{values} of the step in {b} {differ} from the results of its ops executed one by one"
    if left.explained is None and not left.why:
        alike = f"step {localization.step}: the ops of both modes, executed one by one, compute the same bits"
        kernels = (localization.content.get("kernels") or {}).values()
        if any(of_side.get("unrepeatable") for of_side in kernels) and not others:
            return f"{alike}, except for the calls that do not repeat: only these make the difference"
        return f"{alike}; {lazily}, which is not explained" if others else f"{alike}: no op causes the difference"
    own, taped = (
        next((step_score.score for step_score in scores.steps if step_score.step == localization.step), None),
        localization.content.get("score"),
    )
    both = "" if own is None or taped is None else f" (z {own:.3g} in the step itself, {float(taped):.3g} op by op)"
    unlike = (localization.content.get("controls") or {}).get("b") is False
    unlike_itself = f"the tape of {b} does not reproduce its recorded bits{both}" if unlike else ""
    lazily += "" if unlike else both
    doubts = [doubt for doubt in (unlike_itself, lazily if others else "") if doubt]
    if left.explained is not None and left.explained >= ALL:
        sentence = f"executed one by one, the ops of step {localization.step} explain all of their drift"
        return f"{sentence}, but {'; '.join(doubts)}" if doubts else ""
    rest = "" if left.score is None else f"z {left.score:.3g}"
    if left.discrete:
        differing = f"{left.discrete} integer tensor{' that differs' if left.discrete == 1 else 's that differ'}"
        rest += f"{' and ' if rest else ''}{differing}"
    blocks = "1 block" if left.blocks == 1 else f"{left.blocks} blocks"
    where = [f"it may come from {blocks} that could not be swapped ({_named(left)})"] if left.blocks else []
    where += doubts
    flipped = localization.choices.get("flipped")
    if localization.is_explained(threshold) and flipped:
        where.insert(0, other_choices(localization.choices))
    elif verdict.word == "beyond-rounding" and proven_culprits and left.score is not None and not left.discrete:
        where += ["it is within rounding"] if left.score <= threshold else []
    if left.why:
        start = f"the causes of step {localization.step} could not be swapped out together ({left.why})"
        return "; ".join([start, *where])
    suspects = [culprit for culprit in localization.culprits if culprit.proof is not None and not culprit.is_proven]
    if not where:
        unproven = "a suspect has" if len(suspects) == 1 else f"{len(suspects)} suspects have"
        where = [f"{unproven} no proof" if suspects else "no op was found that causes it"]
    if not proven_culprits:
        return f"no cause of the drift of step {localization.step} ({rest}) is proven; {'; '.join(where)}"
    share = 100 * (left.explained or 0.0)
    sentence = f"the causes explain {share:.3g} % of the drift of step {localization.step}; what is left ({rest})"
    return f"{sentence}: {'; '.join(where)}"


def _named(left: LeftOver) -> str:
    more = len(left.untested) - MOST_NAMED
    return ", ".join(left.untested[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _of_a_way(way: Culprit, localized: Sequence[Localization]) -> tuple[float | None, str]:
    """Return the share and the sentence about the rest for a cause that is not an op but a way in which the mode
    executes the step: a stage, a setting, a cut, or a part of the model on the backend."""
    assert way.proof is not None
    before, after = way.proof.swap_out.score_before, way.proof.swap_out.score_without_all
    share = None
    if before and after is not None:
        share = 1.0 if math.isinf(before) and math.isfinite(after) else max(0.0, 1 - after / before)
    left = "" if share is None or share >= ALL else f"without this cause, z {after:.3g} is left"
    if (way.kind == MARK_STEP and way.places) or way.kind == WEIGHTS:
        # No op is missing: the draws that were executed again are named, and weights are no op.
        return share, left
    reason = next((localization.reason for localization in localized if localization.reason), "")
    why = f"step {way.step} could not be taken apart: {reason}" if reason else "no op is proven to cause it"
    return share, f"the cause of the drift is known, but not its ops ({why}){left and f'; {left}'}"


def _not_looked(evidence: PairEvidence, verdict: Verdict, scores: Scores, localized: Sequence[Localization]) -> str:
    """Say why no step was taken apart."""
    a, b = evidence.a, evidence.b
    start = "no cause was looked for"
    if verdict.word is None:
        return f"{start}: the pair is undecided"
    if localized:
        return f"no cause was found: step {localized[0].step} could not be taken apart: {localized[0].reason}"
    if evidence.one_against_several:
        return f"no cause was found: {AGAINST_ONE}"
    if a.manifest.rank:
        why = "with several processes, only the steps of rank 0 are taken apart"
        return f"{start} in rank {a.manifest.rank}: {why}"
    if scores.parts:
        return f"{start} op by op, because {scores.parts}: divide the batch in both modes, or in neither"
    if not scores.steps:
        return f"{start}: {scores.why or f'no step of {b.manifest.label} was begun in the state of the reference'}"
    if all(not step_score.score and not step_score.discrete for step_score in scores.steps):
        return "there is nothing to look for: from the same state, both modes compute the same bits"
    if scores.unreplayed:
        return f"{start}: {scores.unreplayed[0]}"
    if a.manifest.elsewhere:
        return f"{start}, because {a.manifest.label} was trained elsewhere ({a.manifest.elsewhere})"
    runs = f"{a.path} {b.path}" if a.path.parent == b.path.parent else "RUN_A RUN_B"
    return f"{start}: `numdrift localize {runs}` takes a step apart"
