"""Causes that can only be swapped together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import pytest

from numdrift.harness.localize.align.storage_flow import FlowValue, Side
from numdrift.harness.localize.causes.hybrid_tests import Drift, HybridTests, Infeasible
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.joint_causes.inseparable_causes import with_inseparable
from numdrift.harness.tape.tape import Phase

BLOCKS = {"unshuffle": 3, "conv": 5, "mul": 7, "add": 11, "sum": 13}
MOVES = {"unshuffle": 2.0**24, "conv": 1.0, "mul": 3e5, "add": 2.0**20, "sum": 4.0}


class Swaps:
    """Hybrids that can be executed only with all or none of the causes that are `together`."""

    def __init__(self, *together: str, never: Collection[str] = ()) -> None:
        self.together = frozenset(together)
        self.never = frozenset(never)

    def have_time_for(self, count: int) -> bool:
        return True

    def swapped_out(self, causes: Sequence[Cause]) -> Drift:
        names = self.names(causes)
        if names & self.never or 0 < len(names & self.together) < len(self.together):
            raise Infeasible("storage 9 of side b has a different layout on the other side")
        return Drift({}, 0)

    def swapped_in(self, causes: Sequence[Cause]) -> Drift:
        return Drift({}, 0)

    def names(self, causes: Sequence[Cause]) -> frozenset[str]:
        return frozenset(name for name, block in BLOCKS.items() if any(block in cause.blocks for cause in causes))


def cause(name: str, *, only: Collection[str] = ("mul",)) -> Cause:
    """Return the cause of this name; those in `only` are ops that side b alone executes."""
    phase: Phase = "backward" if name == "add" else "forward"
    ops: dict[Side, tuple[str, ...]] = {"a": () if name in only else (name,), "b": (name,)}
    site = SwapSite(frozenset([BLOCKS[name]]), BLOCKS[name])
    return Cause("structure", phase, ops, (f"why {name}",), (site,))


def joined(swaps: Swaps, *, only: Collection[str] = ("mul",), moved: float = 3e5) -> list[Cause]:
    moves = {cause(name).blocks: moved if name == "mul" else move for name, move in MOVES.items()}
    causes = [cause(name, only=only) for name in BLOCKS]
    return with_inseparable(cast(HybridTests, swaps), causes, lambda tried: moves[tried.blocks])


def test_causes_that_can_only_be_swapped_together_are_named_after_the_op_of_one_side() -> None:
    found = joined(Swaps("unshuffle", "mul", "add"))
    assert [each.ops["b"] for each in found] == [("conv",), ("mul",), ("sum",)]
    assert found[1].blocks == {3, 7, 11} and found[1].ops["a"] == () and found[1].phase == "forward"
    assert [site.lead for site in found[1].sites] == [BLOCKS["mul"]]
    assert found[1].reasons == (
        "why mul",
        "cannot be swapped without unshuffle in the forward, add in the backward",
    )


def test_a_cause_that_the_others_do_not_need_stays_apart() -> None:
    class Loose(Swaps):
        def swapped_out(self, causes: Sequence[Cause]) -> Drift:
            if self.names(causes) == {"add"}:  # cannot be swapped alone, but does not matter to the others
                raise Infeasible("storage 5 is made by a block of the other side")
            return super().swapped_out(causes)

    found = joined(Loose("unshuffle", "mul"))
    assert [each.blocks for each in found] == [{5}, {3, 7}, {11}, {13}]


@pytest.mark.parametrize(
    ("swaps", "only", "moved"),
    [
        (Swaps("unshuffle", "mul"), ("mul", "unshuffle"), 3e5),  # either may be at fault
        (Swaps("unshuffle", "mul"), (), 3e5),  # both sides execute both
        (Swaps("unshuffle", "mul"), ("mul",), 1.0),  # it changes no more than a copy
        (Swaps("unshuffle", "mul", never=("unshuffle",)), ("mul",), 3e5),  # not even together
        (Swaps(), ("mul",), 3e5),  # each can be swapped alone
    ],
)
def test_other_causes_are_not_joined(swaps: Swaps, only: Sequence[str], moved: float) -> None:
    assert joined(swaps, only=only, moved=moved) == [cause(name, only=only) for name in BLOCKS]


def test_the_inputs_of_the_step_stay_a_cause_of_their_own() -> None:
    class Unlike(Swaps):
        def swapped_out(self, causes: Sequence[Cause]) -> Drift:
            if any(cause.inputs for cause in causes):
                raise Infeasible("the batches have other shapes")
            return super().swapped_out(causes)

    inputs = Cause("setup", "data", {"a": (), "b": ()}, ("why",), (), (FlowValue(0, 0),))
    causes = [inputs, cause("unshuffle"), cause("mul")]
    found = with_inseparable(cast(HybridTests, Unlike("unshuffle", "mul")), causes, lambda tried: 1e9)
    assert found[0] is inputs and [each.blocks for each in found] == [set(), {3, 7}]
