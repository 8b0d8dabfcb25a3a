"""Causes that can only be swapped together, because one needs a value in the layout that another one computes.

A compiled graph may store a value in a layout that no value of the other side has. Then an op that makes the value
cannot be swapped without the ops that read it (storage 9 has a different layout on the other side):

    side a                        side b
    y = pixel_unshuffle(x)        y = clone(x)    stored in another layout
                                  z = y * 1.02    the mul that only side b executes reads that layout

In a Glow, such a `mul` can be swapped out only with the `pixel_unshuffle` and an `add` of the backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..causes.hybrid_tests import HybridTests, can_be_swapped
from ..causes.proofs import FEW
from ..causes.site_causes import Cause
from ..causes.split_sites import FOR_THE_PROOFS
from ..causes.swap_sites import DOMINATES

MOST = 8
"""The largest number of causes that are joined. The effect of more would say little about each of them."""


def with_inseparable(tests: HybridTests, causes: Sequence[Cause], moves: Callable[[Cause], float]) -> list[Cause]:
    """Return the causes, and join those that cannot be swapped alone, if the smallest set of them can be.

    The joined cause is named after an op that only one side executes, and whose results are far from what it reads.
    Causes are not joined if there is no such op, or if there are several, since each may then be at fault. `moves`
    tells by how many roundings a cause moves its own results; those that move them least are left out first.
    """
    if len(causes) > FEW or not tests.have_time_for(2 * len(causes) + 2 * MOST + FOR_THE_PROOFS):
        return list(causes)
    ops = [cause for cause in causes if not cause.inputs]  # the inputs of the step are no cause to join with an op
    of_one_side = [cause for cause in ops if not all(cause.ops.values()) and moves(cause) > DOMINATES]
    naming = [cause for cause in of_one_side if not can_be_swapped(tests, [cause])]
    if len(naming) != 1:
        return list(causes)
    apart = [cause for cause in ops if cause not in naming and not can_be_swapped(tests, [cause])]
    members = [*naming, *apart]
    if not 2 <= len(members) <= MOST or not can_be_swapped(tests, members):
        return list(causes)
    for cause in sorted(apart, key=moves):
        fewer = [member for member in members if member is not cause]
        if len(fewer) > 1 and can_be_swapped(tests, fewer):
            members = fewer
    first, *others = members
    names = ", ".join(f"{'/'.join(cause.ops['a'] or cause.ops['b'])} in the {cause.phase}" for cause in others)
    reasons = (*first.reasons, f"cannot be swapped without {names}")
    blocks = frozenset(block for cause in others for block in cause.blocks)
    named = replace(first.sites[0], blocks=first.sites[0].blocks | blocks)  # the places are those of the first alone
    joined = replace(first, reasons=reasons, sites=(named, *first.sites[1:]))
    return [joined if cause is first else cause for cause in causes if cause not in others]
