"""Causes that undo each other.

If the sides compute the same thing with different ops, they differ in several places, and each difference alone changes
the result:

    votes.argmax(-1)    3 - votes.flip(-1).argmax(-1)    the flip alone or the subtraction alone changes the result

If one formula replaces another, the ops that both have are paired, and no part of one formula fits the rest of the
other:

    g * (0.5 * (1 + erf(x * c)) + x * pdf)    g * (s + 1.702 * x * s * (1 - s)), s = sigmoid(1.702 * x)

If a compiled graph computes a value in another way than its ops do one by one, two of its kernels may seem wrong, of
which the second takes back what the first does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import combinations

from ..causes.hybrid_tests import HybridTests, Infeasible, can_be_swapped
from ..causes.kernel_suspects import ASTRAY
from ..causes.proofs import FEW
from ..causes.site_causes import Cause
from ..causes.split_sites import FOR_THE_PROOFS
from ..causes.swap_sites import SwapSite
from ..execute.tape_pair import TapePair

UNDONE = 2.0
"""The ratio of the drift of a cause alone to that of all causes together. Above it, the others undo the cause."""

MOST = 6
"""The largest number of causes whose pairs are tried."""

STATED = ("structure", "arguments")
"""The kinds of causes in which the script itself computes something differently."""


def with_undone_together(
    tests: HybridTests, causes: Sequence[Cause], rounding: Collection[tuple[SwapSite, ...]] = ()
) -> list[Cause]:
    """Return the causes, and join those that undo each other.

    Only causes of the kinds `structure` and `arguments`, and kernels that are wrong within their graph, are joined, in
    the same phase. Each of them alone causes far more drift than the step has, but two of them together do not, or all
    stated ones in one module or phase. The causes of a module or phase include those that cannot be swapped alone. A
    cause with the sites of one of `rounding` only rounds differently, so that there is nothing to undo.
    """
    joined = list(causes)
    tried = [cause for cause in joined if (cause.kind in STATED or _is_astray(cause)) and cause.sites not in rounding]
    if len(joined) > FEW or not tests.have_time_for(2 * len(tried) + FOR_THE_PROOFS):
        return joined  # too many to try each one alone
    candidates = [cause for cause in tried if _is_undone(tests, [cause])]
    while len(candidates) in range(2, MOST + 1):
        pairs = [pair for pair in combinations(candidates, 2) if pair[0].phase == pair[1].phase]
        pair = next((tried_pair for tried_pair in pairs if not _is_undone(tests, tried_pair)), None)
        if pair is None:
            break
        merged = _merged(pair)
        joined = [merged if cause is pair[0] else cause for cause in joined if cause is not pair[1]]
        candidates = [cause for cause in candidates if cause not in pair]
    for place in (_place, _phase):
        groups: dict[object, list[Cause]] = {}
        for cause in joined:
            is_tried = cause.kind in STATED and cause.sites not in rounding
            if is_tried and (_is_undone(tests, [cause]) or not can_be_swapped(tests, [cause])):
                groups.setdefault(place(tests.pair, cause), []).append(cause)
        for group in groups.values():
            if len(group) > 1 and any(_is_undone(tests, [member]) for member in group) and _goes_together(tests, group):
                merged = _merged(group)
                joined = [merged if cause is group[0] else cause for cause in joined if cause not in group[1:]]
    return joined


def _is_astray(cause: Cause) -> bool:
    return cause.kind == "kernel" and any(reason.startswith(ASTRAY) for reason in cause.reasons)


def _phase(pair: TapePair, cause: Cause) -> object:
    return cause.phase


def _place(pair: TapePair, cause: Cause) -> object:
    return cause.phase, pair.module(cause.sites[0].lead)


def _goes_together(tests: HybridTests, causes: Sequence[Cause]) -> bool:
    """Check whether the causes can be swapped together and then cause at most UNDONE times the step's drift."""
    try:
        limit = UNDONE * tests.swapped_out([]).amount
        return tests.swapped_in(causes).amount <= limit and tests.swapped_out(causes).amount <= limit
    except Infeasible:
        return False


def _is_undone(tests: HybridTests, causes: Collection[Cause]) -> bool:
    """Check whether the causes lead to more than UNDONE times the step's drift, both when they are swapped into side a
    and when they are swapped out of side b."""
    try:
        limit = UNDONE * tests.swapped_out([]).amount
        tried = list(causes)
        return tests.swapped_in(tried).amount > limit and tests.swapped_out(tried).amount > limit
    except Infeasible:
        return False


def _merged(causes: Sequence[Cause]) -> Cause:
    blocks = frozenset(block for cause in causes for block in cause.blocks)
    lead = min(site.lead for cause in causes for site in cause.sites)
    first = next(cause for cause in causes if any(site.lead == lead for site in cause.sites))
    remaining = [cause for cause in causes if cause is not first]
    reasons = dict.fromkeys(reason for cause in (first, *remaining) for reason in cause.reasons)
    ops = {side: tuple(op for cause in (first, *remaining) for op in cause.ops[side]) for side in first.ops}
    return replace(first, ops=ops, reasons=tuple(reasons), sites=(SwapSite(blocks, lead),))
