"""How much of a pair's drift its proven causes account for, and what is said of the rest: no pair that differs ends
silent.

    0.998, ""                                          swapped out together, all of it goes
    0.83,  "the causes explain 83 % of the drift of step 3; what is left (z 1.2) ..."
    None,  "no cause was looked for: step 3: _embedding_bag is not replayed"
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..records.culprit import MARK_STEP, Culprit
from ..records.findings import Verdict
from ..records.localization_record import LeftOver, Localization
from .evidence import PairEvidence
from .ops import AGAINST_ONE
from .pair_scores import Scores
from .question import proven

ACCOUNTED = ("rounding", "beyond-rounding", "nonfinite", None)
"""Verdicts that say of a drift that there is one, or that nothing decides what it is."""

ALL = 0.995
"""The share from which on nothing is worth a word: 100 % as it is printed."""

MOST_NAMED = 4


def accounted(
    evidence: PairEvidence,
    verdict: Verdict,
    scores: Scores,
    localized: Sequence[Localization],
    culprits: Sequence[Culprit],
) -> tuple[float | None, str]:
    """The share of the drift that goes with all proven causes, None where nobody knows; and what is left and what was
    excluded, empty where all of it goes or there is none. Only of pairs that differ."""
    if verdict.word not in ACCOUNTED:
        return None, ""
    found = proven(verdict.word, culprits)
    taken_apart = [one for one in localized if not one.reason]
    if found and all(one.is_way for one in found):
        return _of_a_way(found[0], localized)
    if not taken_apart:
        return None, _not_looked(evidence, verdict, scores, localized)
    # Of several steps that whose causes come first, else that which the verdict is about.
    steps = [next((one.step for one in culprits if one.is_proven), None), verdict.step, taken_apart[-1].step]
    chosen = next(one for step in steps for one in taken_apart if one.step == step)
    return chosen.left.explained, _what_is_left(chosen, verdict, scores, evidence.b.manifest.label)


def _what_is_left(one: Localization, verdict: Verdict, scores: Scores, b: str) -> str:
    left, threshold, found = one.left, scores.threshold.fault, [each for each in one.culprits if each.is_proven]
    others = len(one.op_by_op_differs)
    values = "1 value" if others == 1 else f"{others} values"
    lazily = f"{values} of the step in {b} {'is' if others == 1 else 'are'} other than what its ops give one by one"
    if left.explained is None and not left.why:
        alike = f"step {one.step}: executed one by one, the ops of both modes give the same bits"
        return f"{alike}; {lazily}, and that is not explained" if others else f"{alike}: what differs is no op's"
    own, taped = next((each.score for each in scores.steps if each.step == one.step), None), one.content.get("score")
    both = "" if own is None or taped is None else f" (z {own:.3g} in the step itself, {float(taped):.3g} op by op)"
    unlike = (one.content.get("controls") or {}).get("b") is False
    unlike_itself = f"the tape of {b} does not give its own bits again{both}" if unlike else ""
    lazily += "" if unlike else both
    doubts = [said for said in (unlike_itself, lazily if others else "") if said]
    if left.explained is not None and left.explained >= ALL:
        said = f"nothing is left of what the ops of step {one.step} do one by one, but {'; '.join(doubts)}"
        return said if doubts else ""
    rest = "" if left.score is None else f"z {left.score:.3g}"
    if left.discrete:
        rest += f"{' and ' if rest else ''}{left.discrete} of integers"
    where = [f"it may lie in {left.blocks} blocks that could not be swapped ({_named(left)})"] if left.blocks else []
    where += doubts
    flipped = one.choices.get("flipped")
    if one.is_explained(threshold) and flipped:
        where.insert(0, f"{flipped} elements of {', '.join(one.choices['ops'])} chose otherwise next to their edges")
    elif verdict.word == "beyond-rounding" and found and left.score is not None and not left.discrete:
        where += ["it is within rounding"] if left.score <= threshold else []
    if left.why:
        start = f"the causes of step {one.step} could not be swapped out together ({left.why})"
        return "; ".join([start, *where])
    suspects = [each for each in one.culprits if each.proof is not None and not each.is_proven]
    if not where:
        unproven = "a suspect has" if len(suspects) == 1 else f"{len(suspects)} suspects have"
        where = [f"{unproven} no proof" if suspects else "no op was found that makes it"]
    if not found:
        return f"no cause of the drift of step {one.step} ({rest}) is proven; {'; '.join(where)}"
    share = 100 * (left.explained or 0.0)
    said = f"the causes explain {share:.3g} % of the drift of step {one.step}; what is left ({rest})"
    return f"{said}: {'; '.join(where)}"


def _named(left: LeftOver) -> str:
    more = len(left.untested) - MOST_NAMED
    return ", ".join(left.untested[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _of_a_way(way: Culprit, localized: Sequence[Localization]) -> tuple[float | None, str]:
    """Where no op is the cause, but a way in which the mode executes: a stage, a setting, a cut, a part."""
    assert way.proof is not None
    before, after = way.proof.swap_out.score_before, way.proof.swap_out.score_without_all
    share = None
    if before and after is not None:
        share = 1.0 if math.isinf(before) and math.isfinite(after) else max(0.0, 1 - after / before)
    left = "" if share is None or share >= ALL else f"what is left without it is z {after:.3g}"
    if way.kind == MARK_STEP and way.places:  # its ops are named: they draw again what was not kept
        return share, left
    reason = next((one.reason for one in localized if one.reason), "")
    why = f"step {way.step} could not be taken apart: {reason}" if reason else "no op is proven to make it"
    return share, f"what makes the drift is known, its ops are not ({why}){left and f'; {left}'}"


def _not_looked(evidence: PairEvidence, verdict: Verdict, scores: Scores, localized: Sequence[Localization]) -> str:
    """Why no step was taken apart."""
    a, b = evidence.a, evidence.b
    start = "no cause was looked for"
    if verdict.word is None:
        return f"{start}: nothing decides whether there is one"
    if localized:
        return f"no cause was found: step {localized[0].step} could not be taken apart: {localized[0].reason}"
    if evidence.one_against_several:
        return f"no cause was found: {AGAINST_ONE}"
    if a.manifest.rank:
        return f"{start} in rank {a.manifest.rank}: of several processes only rank 0 is taken apart"
    if not scores.steps:
        return f"{start}: {scores.why or f'no step of {b.manifest.label} was begun in the state of the reference'}"
    if all(not one.score and not one.discrete for one in scores.steps):
        return "nothing is left to look for: from one state both modes compute the same bits"
    if scores.unreplayed:
        return f"{start}: {scores.unreplayed[0]}"
    runs = f"{a.path} {b.path}" if a.path.parent == b.path.parent else "RUN_A RUN_B"
    return f"{start}: `numdrift localize {runs}` takes a step apart"
