"""Causes that undo one another: a script that says one thing in other words differs in several places, of which each
alone makes another thing of it.

    votes.argmax(-1)    3 - votes.flip(-1).argmax(-1)    without the flip or the subtraction, any place is chosen
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from .hybrid_tests import HybridTests, Infeasible
from .proofs import FEW
from .swap_sites import Cause, SwapSite

UNDONE = 2.0
"""A cause makes more drift alone than all of them together by so much: the others undo it."""

MOST = 6
"""So many are tried in pairs."""


def with_undone_together(tests: HybridTests, causes: Sequence[Cause]) -> list[Cause]:
    """The causes, those as one that are told to be others, lie in one phase, and make more drift each than both."""
    found = list(causes)
    if len(found) > FEW:
        return found  # each by itself is too many to be tried
    candidates = [one for one in found if one.kind in ("structure", "arguments") and _is_undone(tests, [one])]
    while len(candidates) in range(2, MOST + 1):
        pairs = [pair for pair in combinations(candidates, 2) if pair[0].phase == pair[1].phase]
        pair = next((one for one in pairs if not _is_undone(tests, one)), None)
        if pair is None:
            break
        whole = _as_one(pair)
        found = [whole if one is pair[0] else one for one in found if one is not pair[1]]
        candidates = [one for one in candidates if one not in pair]
    return found


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
