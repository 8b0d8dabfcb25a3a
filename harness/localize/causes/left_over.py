"""The drift that is left in a step once all proven causes are swapped out together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...records.results.culprit import Culprit
from ...records.results.localization_record import LeftOver
from ..align.storage_flow import SIDES
from .hybrid_tests import Drift, HybridTests, Infeasible
from .site_causes import Cause


def left_over(tests: HybridTests, culprits: Sequence[tuple[Cause, Culprit]]) -> LeftOver:
    """Execute one more hybrid: side b with all proven causes swapped out."""
    whole_drift = tests.swapped_out([])
    # a cause that could not be both swapped in and swapped out is neither proven nor excluded
    untested = [
        cause
        for cause, culprit in culprits
        if culprit.proof is not None and None in (culprit.proof.swap_in.score_after, culprit.proof.swap_out.score_after)
    ]
    blocks = sorted(frozenset(block for cause in untested for block in cause.blocks))
    ops = dict.fromkeys(name for block in blocks for side in SIDES for name in tests.pair.names(block, side))
    try:
        remaining = tests.swapped_out([cause for cause, culprit in culprits if culprit.is_proven])
    except Infeasible as error:
        return LeftOver(untested=tuple(ops), blocks=len(blocks), why=str(error))
    return LeftOver(_share(whole_drift, remaining), remaining.score, remaining.discrete, tuple(ops), len(blocks))


def _share(whole_drift: Drift, remaining: Drift) -> float | None:
    """Return the share of the whole drift's score that goes away.

    If only integers drift, return the share of the differing tensors. An infinite drift goes away entirely if
    the remaining drift is finite; otherwise the share is computed from the squared amounts of the drifts.
    """
    if whole_drift.is_none:
        return None
    if not whole_drift.score:
        return max(0.0, 1 - remaining.discrete / whole_drift.discrete)
    if math.isinf(whole_drift.score):
        return 1.0 if math.isfinite(remaining.score) else max(0.0, 1 - (remaining.amount / whole_drift.amount) ** 2)
    return max(0.0, 1 - remaining.score / whole_drift.score)
