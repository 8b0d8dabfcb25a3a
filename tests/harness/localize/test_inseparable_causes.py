"""Causes that can only be swapped together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import pytest

from numdrift.harness.localize.causes.hybrid_tests import Drift, HybridTests, Infeasible
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.joint_causes.inseparable_causes import with_inseparable

BLOCKS = {"unshuffle": 3, "conv": 5, "mul": 7, "add": 11, "sum": 13}
MOVES = {"unshuffle": 2.0**24, "conv": 1.0, "mul": 3e5, "add": 2.0**20, "sum": 4.0}
THRESHOLD = 16.0


class Swaps:
    """Hybrids that can be executed only with all or none of the causes that are `together`.

    drifts: the causes that drift beyond the threshold when they are swapped into side a, and which can be swapped into
        it without the others
    """

    def __init__(self, together: Collection[str], drifts: Collection[str], *, never: Collection[str] = ()) -> None:
        self.together = frozenset(together)
        self.drifts = frozenset(drifts)
        self.never = frozenset(never)

    def have_time_for(self, count: int) -> bool:
        return True

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        names = self.names(causes)
        if names & self.never or 0 < len(names & self.together) < len(self.together):
            raise Infeasible("storage 9 of side b has a different layout on the other side")
        return Drift({}, 0)

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        names = self.names(causes)
        if names & self.drifts:
            return Drift({"loss 0": 1e6}, 0)
        return self.swapped_out(causes)

    def names(self, causes: Sequence[Cause]) -> frozenset[str]:
        return frozenset(name for name, block in BLOCKS.items() if any(block in cause.blocks for cause in causes))


def cause(name: str) -> Cause:
    phase: Mapping[str, str] = {"add": "backward"}
    ops: dict[str, tuple[str, ...]] = {"a": () if name == "mul" else (name,), "b": (name,)}
    site = SwapSite(frozenset([BLOCKS[name]]), BLOCKS[name])
    return Cause("structure", phase.get(name, "forward"), ops, (f"why {name}",), (site,))  # type: ignore[arg-type]


def joined(swaps: Swaps, *names: str) -> list[Cause]:
    causes = [cause(name) for name in names or BLOCKS]
    moves = {cause(name).blocks: move for name, move in MOVES.items()}
    return with_inseparable(cast(HybridTests, swaps), causes, THRESHOLD, lambda tried: moves[tried.blocks])


def test_causes_that_can_only_be_swapped_together_are_joined_and_named_after_the_one_that_drifts() -> None:
    found = joined(Swaps(("unshuffle", "mul", "add"), ("mul",)))
    assert [each.ops["b"] for each in found] == [("conv",), ("mul",), ("sum",)]
    assert found[1].blocks == {3, 7, 11} and found[1].ops["a"] == () and found[1].phase == "forward"
    assert [site.lead for site in found[1].sites] == [BLOCKS["mul"]]
    assert found[1].reasons == (
        "why mul",
        "cannot be swapped without unshuffle in the forward, add in the backward, "
        + "because the sides store values in other layouts",
    )


def test_a_cause_that_the_others_do_not_need_stays_apart() -> None:
    class Loose(Swaps):
        def swapped_out(self, causes: Sequence[Cause]) -> Drift:
            if self.names(causes) == {"add"}:  # cannot be swapped alone, but does not matter to the others
                raise Infeasible("storage 5 is made by a block of the other side")
            return super().swapped_out(causes)

    found = joined(Loose(("unshuffle", "mul"), ("mul",)))
    assert [each.blocks for each in found] == [{5}, {3, 7}, {11}, {13}]


@pytest.mark.parametrize(
    "swaps",
    [
        Swaps(("unshuffle", "mul"), ("mul", "unshuffle")),  # either may be at fault
        Swaps(("unshuffle", "mul"), ()),  # none is seen to be at fault
        Swaps(("unshuffle", "mul"), ("mul",), never=("unshuffle",)),  # not even together
        Swaps((), ("mul",)),  # each can be swapped alone
    ],
)
def test_other_causes_are_not_joined(swaps: Swaps) -> None:
    assert joined(swaps) == [cause(name) for name in BLOCKS]
