"""The order of causes without a proof: by what they explain, and calls that nothing reads last."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch

from numdrift.harness.localize.align.storage_flow import Side
from numdrift.harness.localize.causes.examination import Examined, examine
from numdrift.harness.localize.causes.found_culprits import Describer
from numdrift.harness.localize.causes.hybrid_tests import Drift
from numdrift.harness.localize.causes.net_effect import net_effects
from numdrift.harness.localize.causes.proofs import MeasuredCause, Proofs
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.execute.tape_pair import TapePair

from .pairs import Small, sides

WHOLE = 400.0
Measured = tuple[float | None, float | None, float | None]
"""The scores when a cause is swapped in and out, None if it cannot be, and its share."""


class Accumulating(Small):
    """A training whose other side adds to two gradients, and computes two values that nothing reads."""

    extra = False

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.loss(self.net(self.x)))
        if self.extra:
            with torch.no_grad():
                unread = self.net.first.weight.cos()
                unread.sin().sum().item()
                self.net.head.weight.grad.add_(self.net.head.weight.exp())  # type: ignore[union-attr]
                self.net.head.bias.grad.sub_(self.net.head.bias.tan())  # type: ignore[union-attr]
        self.optimizer.step()


def accumulates(training: Any) -> None:
    training.extra = True


@cache
def aligned() -> tuple[TapePair, dict[int, Examined]]:
    pair = sides(Accumulating, accumulates).pair()
    return pair, examine(pair, suspects(pair), errors=False)


def ordered(measured: Mapping[str, Measured], *, whole: float = WHOLE, significant: tuple[str, ...] = ()) -> list[str]:
    """Return the ops of the described causes, in their order; the causes are single calls of the other side only."""
    pair, examined = aligned()

    def cause(op: str) -> MeasuredCause:
        block = next(
            number for number, block in enumerate(pair.blocks) if not block.a and op in pair.names(number, "b")
        )
        came, went, share = measured[op]
        swapped_in, swapped_out = (None if score is None else Drift({"w": score}, 0) for score in (came, went))
        site = SwapSite(frozenset([block]), block)
        ops: dict[Side, tuple[str, ...]] = {"a": (), "b": (op,)}
        return MeasuredCause(Cause("structure", "backward", ops, (), (site,)), swapped_in, swapped_out, share)

    causes = {op: cause(op) for op in measured}
    proofs = Proofs(
        Drift({"w": whole}, 0),
        Drift({"w": whole}, 0),  # nothing is proven
        tuple(causes[op] for op in significant),
        tuple(causes[op] for op in measured if op not in significant),
        tests=0,
    )
    effects = net_effects(pair, [measured_cause.cause for measured_cause in causes.values()])
    found = Describer(pair, examined, proofs, 16.0, lambda side, numbers: None, effects).culprits()
    assert not any(culprit.is_proven for _, culprit in found)
    return [cause.ops["b"][0] for cause, _ in found]


@pytest.mark.parametrize("whole", [WHOLE, float("inf")])
def test_suspects_are_in_the_order_of_what_they_explain(whole: float) -> None:
    shares: dict[str, Measured] = {"sub_": (9.0, whole, 0.1), "add_": (whole, whole, 0.5), "cos": (None, whole, 0.2)}

    assert ordered(shares, whole=whole) == ["add_", "sub_", "cos"]
    assert ordered(shares, whole=whole, significant=("sub_",)) == ["add_", "sub_", "cos"]


def test_calls_that_nothing_reads_come_last() -> None:
    assert ordered({"_local_scalar_dense": (None, WHOLE, 0.01), "add_": (None, WHOLE, 0.0)})[0] == "add_"
    assert ordered({"_local_scalar_dense": (None, WHOLE, 0.01), "add_": (None, None, None)})[0] == "add_"
    # the gradient reads this one
    assert ordered({"sub_": (None, WHOLE, 0.01), "add_": (None, WHOLE, 0.0)})[0] == "sub_"


def test_a_suspect_that_cannot_be_swapped_out_explains_what_it_brings() -> None:
    assert ordered({"sub_": (1.0, WHOLE, 0.3), "add_": (WHOLE, None, None)}) == ["add_", "sub_"]
    assert ordered({"sub_": (1.0, WHOLE, 0.3), "add_": (1.0, None, None)}) == ["sub_", "add_"]
    assert ordered({"add_": (None, None, None), "sub_": (1.0, WHOLE, 0.001)}) == ["sub_", "add_"]
