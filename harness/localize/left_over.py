"""What is left of a step's drift once all that is proven is swapped out together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..records.culprit import Culprit
from ..records.localization_record import LeftOver
from .hybrid_tests import Drift, HybridTests, Infeasible
from .storage_flow import SIDES
from .suspects import names_of
from .swap_sites import Cause


def left_over(tests: HybridTests, told: Sequence[tuple[Cause, Culprit]]) -> LeftOver:
    """One more hybrid: side b without all proven causes."""
    whole = tests.swapped_out([])
    # what was never executed both ways is neither proven nor excluded
    untested = [
        cause
        for cause, one in told
        if one.proof is not None and None in (one.proof.swap_in.score_after, one.proof.swap_out.score_after)
    ]
    blocks = sorted(frozenset(block for cause in untested for block in cause.blocks))
    ops = dict.fromkeys(name for block in blocks for side in SIDES for name in names_of(tests.pair, block, side))
    try:
        rest = tests.swapped_out([cause for cause, one in told if one.is_proven])
    except Infeasible as error:
        return LeftOver(untested=tuple(ops), blocks=len(blocks), why=str(error))
    return LeftOver(_share(whole, rest), rest.score, rest.discrete, tuple(ops), len(blocks))


def _share(whole: Drift, rest: Drift) -> float | None:
    """How much of a drift goes, in z; of integers alone by how many tensors of them differ. Of one that is infinite all
    where what is left is finite, else by how much is."""
    if whole.is_none:
        return None
    if not whole.score:
        return max(0.0, 1 - rest.discrete / whole.discrete)
    if math.isinf(whole.score):
        return 1.0 if math.isfinite(rest.score) else max(0.0, 1 - (rest.amount / whole.amount) ** 2)
    return max(0.0, 1 - rest.score / whole.score)
