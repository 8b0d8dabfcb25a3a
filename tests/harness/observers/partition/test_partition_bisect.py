from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.fx
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.observers.partition.partition_journal import Part, PartCall
from numdrift.harness.observers.partition.partitioned_module import partitioned
from numdrift.harness.records.tools.partition_record import PartitionConfig
from numdrift.harness.search import CARRIED, MOST_CARRIERS, Drifts, carriers

from .models import INPUTS, MLP, ToyAdapter

PARTS = [(0, number) for number in range(16)]


def each(drift: Callable[[frozenset[Part]], float]) -> Drifts[Part]:
    return lambda sets: [drift(only) for only in sets]


def summed(weights: dict[Part, float]) -> Callable[[frozenset[Part]], float]:
    return lambda only: sum(weights.get(one, 0.0) for one in only)


def test_the_one_that_carries_the_drift_is_found_in_two_questions_a_halving() -> None:
    found = carriers(PARTS, each(summed({(0, 11): 1.0, (0, 3): 0.01})))
    [carrier] = found.carriers
    assert (carrier.parts, carrier.alone, carrier.without) == (((0, 11),), 1.0, 0.01)
    assert (found.whole, found.remaining) == (1.01, 0.01)
    assert found.count <= 2 + 2 * 4


def test_carriers_are_looked_for_until_little_remains() -> None:
    found = carriers(PARTS, each(summed({(0, 2): 4.0, (0, 9): 3.0, (0, 12): 0.5})))
    assert [one.parts for one in found.carriers] == [((0, 2),)]
    found = carriers(PARTS, each(summed({(0, 2): 4.0, (0, 9): 5.0, (0, 12): 0.5})))
    assert [one.parts for one in found.carriers] == [((0, 9),)]
    found = carriers(
        PARTS,
        each(lambda only: max(((4.0, 3.0)[one[1] == 9] for one in only & {(0, 2), (0, 9)}), default=0.0)),
    )
    assert [one.parts for one in found.carriers] == [((0, 2),), ((0, 9),)] and found.remaining == 0


def test_what_is_left_is_looked_into_as_long_as_it_is_too_much() -> None:
    drift = each(summed({(0, 2): 100.0, (0, 9): 10.0, (0, 12): 1.0}))
    assert [one.parts for one in carriers(PARTS, drift).carriers] == [((0, 2),)]
    found = carriers(PARTS, drift, enough=2.0)
    assert [one.parts for one in found.carriers] == [((0, 2),), ((0, 9),)] and found.remaining == 1.0


def test_parts_that_drift_only_together_are_named_together() -> None:
    found = carriers(PARTS, each(lambda only: float({(0, 7), (0, 8)} <= only)))
    assert found.carriers[0].parts == tuple(PARTS) and found.remaining == 0


def test_without_a_drift_nothing_is_looked_for() -> None:
    found = carriers(PARTS, each(lambda only: 0.0))
    assert (found.carriers, found.count) == ((), 1)


@given(st.dictionaries(st.sampled_from(PARTS), st.integers(0, 100).map(float), max_size=16))
def test_it_ends_and_what_it_says_is_so(weights: dict[Part, float]) -> None:
    drift = summed(weights)
    found = carriers(PARTS, each(drift))
    taken: set[Part] = set()
    for carrier in found.carriers:
        assert not taken & set(carrier.parts) and carrier.alone == drift(frozenset(carrier.parts))
        taken |= set(carrier.parts)
        assert carrier.without == drift(frozenset(PARTS) - taken)
    assert found.remaining < CARRIED * found.whole or found.whole == 0 or len(found.carriers) == MOST_CARRIERS


class Inaccurate(ToyAdapter):
    """The toy with a log_softmax that is a thousandth off."""

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        for node in list(graph.graph.nodes):
            if node.target is torch.ops.aten._log_softmax.default:
                with graph.graph.inserting_after(node):
                    off = graph.graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.001))
                node.replace_all_uses_with(off, delete_user_cb=lambda user, off=off: user is not off)
        graph.recompile()
        return super().compile_graph(graph, inputs)


@pytest.mark.slow
def test_an_inaccurate_kernel_of_a_backend_is_found_in_a_module() -> None:
    # given
    torch.manual_seed(0)
    module, x = MLP().eval(), torch.rand(4, INPUTS)
    calls: dict[Part, PartCall] = {}

    def drift(only: frozenset[Part]) -> float:
        torch.compiler.reset()
        made = partitioned(copy.deepcopy(module), x, Inaccurate(), PartitionConfig(), lambda _: None, only)
        calls.update(made.calls)
        return float((made(x) - module(x)).abs().max())

    # when
    with torch.no_grad():
        whole = partitioned(copy.deepcopy(module), x, Inaccurate(), PartitionConfig(), lambda _: None)
        found = carriers(sorted(whole.calls), each(drift))
    # then
    [carrier] = found.carriers
    assert [calls[part][0] for part in carrier.parts] == ["aten::log_softmax"]
    assert carrier.alone == found.whole > 1e-4 and carrier.without == 0
    torch.compiler.reset()
