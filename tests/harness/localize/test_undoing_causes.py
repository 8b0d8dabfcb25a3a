"""Kernels of a compiled graph that take back what another one does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from numdrift.harness.localize.causes.hybrid_tests import Drift, HybridTests
from numdrift.harness.localize.causes.kernel_suspects import ASTRAY
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.joint_causes.undoing_causes import with_undone_together

ADD, DIV, FAULT = 3, 5, 7
WHOLE = 1e6
"""The drift of the step, which comes from FAULT."""


class Hybrids:
    """Hybrids in which ADD without DIV, and DIV without ADD, drift by `alone`."""

    pair: Any = None

    def __init__(self, alone: float, *, takes_back: bool = True) -> None:
        self._alone = alone
        self._takes_back = takes_back

    def have_time_for(self, count: int) -> bool:
        return True

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        return self._drift(causes, WHOLE if any(FAULT in cause.blocks for cause in causes) else 0.0)

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        return self._drift(causes, 0.0 if any(FAULT in cause.blocks for cause in causes) else WHOLE)

    def _drift(self, causes: Sequence[Cause], drift: float) -> Drift:
        swapped = {block for cause in causes for block in cause.blocks} & {ADD, DIV}
        is_undone = len(swapped) == 1 or (swapped and not self._takes_back)
        return Drift({"loss 0": max(drift, self._alone) if is_undone else drift}, 0)


def kernel(block: int, op: str, reason: str) -> Cause:
    return Cause("kernel", "forward", {"a": (op,), "b": (op,)}, (reason,), (SwapSite(frozenset([block]), block),))


@pytest.mark.parametrize(
    ("hybrids", "reason", "joined"),
    [
        (Hybrids(4 * WHOLE), f"{ASTRAY} from those that it returns when it is executed alone", True),
        (Hybrids(1.5 * WHOLE), f"{ASTRAY} from those that it returns when it is executed alone", False),
        (Hybrids(4 * WHOLE, takes_back=False), f"{ASTRAY} from those that it returns when it is executed alone", False),
        (Hybrids(4 * WHOLE), "decomposed into sub, mul", False),
    ],
)
def test_kernels_of_a_graph_that_undo_each_other_are_one_cause(hybrids: Hybrids, reason: str, joined: bool) -> None:
    causes = [kernel(ADD, "add", reason), kernel(DIV, "div", reason), kernel(FAULT, "mul", reason)]
    found = with_undone_together(cast(HybridTests, hybrids), causes)
    assert [cause.blocks for cause in found] == ([{ADD, DIV}, {FAULT}] if joined else [{ADD}, {DIV}, {FAULT}])
