"""Causes that undo one another: a script that says one thing in other words differs in several places, of which each
alone makes another thing of it.

    votes.argmax(-1)    3 - votes.flip(-1).argmax(-1)    without the flip or the subtraction, any place is chosen

A formula in place of another one is paired piece by piece where both have the same ops, and no piece of the one goes
with the rest of the other:

    g * (0.5 * (1 + erf(x * c)) + x * pdf)    g * (s + 1.702 * x * s * (1 - s)), s = sigmoid(1.702 * x)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from .hybrid import TapePair
from .hybrid_tests import HybridTests, Infeasible
from .proofs import FEW
from .swap_sites import Cause, SwapSite, module_of

UNDONE = 2.0
"""A cause makes more drift alone than all of them together by so much: the others undo it."""

MOST = 6
"""So many are tried in pairs."""

TOLD = ("structure", "arguments")
"""Kinds of causes that a script says in other words."""


def with_undone_together(tests: HybridTests, causes: Sequence[Cause]) -> list[Cause]:
    """The causes, those as one that are told to be others, lie in one phase, and make more drift each than both, or
    than all of a place with what cannot be swapped alone."""
    found = list(causes)
    if len(found) > FEW:
        return found  # each by itself is too many to be tried
    candidates = [one for one in found if one.kind in TOLD and _is_undone(tests, [one])]
    while len(candidates) in range(2, MOST + 1):
        pairs = [pair for pair in combinations(candidates, 2) if pair[0].phase == pair[1].phase]
        pair = next((one for one in pairs if not _is_undone(tests, one)), None)
        if pair is None:
            break
        whole = _as_one(pair)
        found = [whole if one is pair[0] else one for one in found if one is not pair[1]]
        candidates = [one for one in candidates if one not in pair]
    for place in (_place, _phase):
        groups: dict[object, list[Cause]] = {}
        for one in found:
            if one.kind in TOLD and (_is_undone(tests, [one]) or not _is_feasible(tests, one)):
                groups.setdefault(place(tests.pair, one), []).append(one)
        for group in groups.values():
            if len(group) > 1 and any(_is_undone(tests, [one]) for one in group) and _goes_together(tests, group):
                whole = _as_one(group)
                found = [whole if one is group[0] else one for one in found if one not in group[1:]]
    return found


def _phase(pair: TapePair, cause: Cause) -> object:
    return cause.phase


def _place(pair: TapePair, cause: Cause) -> object:
    return cause.phase, module_of(pair, cause.sites[0].lead)


def _is_feasible(tests: HybridTests, cause: Cause) -> bool:
    try:
        tests.swapped_in([cause])
        tests.swapped_out([cause])
    except Infeasible:
        return False
    return True


def _goes_together(tests: HybridTests, causes: Sequence[Cause]) -> bool:
    """Whether together they can be swapped, and make no more drift than there is."""
    try:
        limit = UNDONE * tests.swapped_out([]).amount
        return tests.swapped_in(causes).amount <= limit and tests.swapped_out(causes).amount <= limit
    except Infeasible:
        return False


def _is_undone(tests: HybridTests, causes: Collection[Cause]) -> bool:
    """Whether they make more drift than there is, put into side a and taken out of side b."""
    try:
        limit = UNDONE * tests.swapped_out([]).amount
        tried = list(causes)
        return tests.swapped_in(tried).amount > limit and tests.swapped_out(tried).amount > limit
    except Infeasible:
        return False


def _as_one(causes: Sequence[Cause]) -> Cause:
    blocks = frozenset(block for one in causes for block in one.blocks)
    lead = min(site.lead for one in causes for site in one.sites)
    first = next(one for one in causes if any(site.lead == lead for site in one.sites))
    others = [one for one in causes if one is not first]
    reasons = dict.fromkeys(reason for one in (first, *others) for reason in one.reasons)
    ops = {side: tuple(op for one in (first, *others) for op in one.ops[side]) for side in first.ops}
    return replace(first, ops=ops, reasons=tuple(reasons), sites=(SwapSite(blocks, lead),))
