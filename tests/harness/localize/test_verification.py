"""The kernels that a side turns out to have, where its calls gave other bits than plain kernels do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import FlowNode
from numdrift.harness.localize.execute.prepared_call import PreparedCall
from numdrift.harness.localize.execute.unrepeatable_calls import UnrepeatableCalls
from numdrift.harness.localize.execute.verification import SideKernels, verify
from numdrift.harness.localize.execute.worker_calls import WorkerCalls
from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.serving.step_kernels import ReplayedKernels
from numdrift.harness.tape.tape import CompiledNode

from .pairs import Sides, taped


def work(saw: Callable[[str, Tensor], None]) -> None:
    x = torch.linspace(1, 2, 8).mul(1.0)
    saw("loss 0", x.exp().sum())


class Alone:
    """A process whose kernels are plain ones: where `op` gave `value` in its graph, it does not give that alone."""

    def __init__(self, value: Tensor, op: str = "exp") -> None:
        self._value = value
        self._op = op

    def prepare(self, nodes: Sequence[FlowNode]) -> None:
        """Everything is ready."""

    def execute(self, call: PreparedCall) -> list[Any]:
        return call.execute()

    def value(self, node: FlowNode) -> list[Tensor] | None:
        return [self._value.clone()] if node.call.name == self._op else None


def test_a_side_of_plain_kernels_has_the_values_of_its_verification() -> None:
    side = taped(work)
    pair = Sides(side, taped(work)).pair()
    digests = [list(each) for each in ReplayedKernels(lambda: side).digests()]
    _, kernels, values = verify(pair, "b", digests, cast(WorkerCalls, Alone(torch.zeros(()))), UnrepeatableCalls())
    assert kernels is pair.kernels["b"] and values is not None
    assert list(values) == ["loss 0"] and is_same(values["loss 0"], side.expected()["loss 0"])
    # but if the graph computed another sum, only the kernels of the side can compute the side's values
    given = side.expected()["loss 0"] * 1.5
    digests[-1] = [digest_of(given)]
    _, _, values = verify(pair, "b", digests, cast(WorkerCalls, Alone(given, "sum")), UnrepeatableCalls())
    assert values is None


@pytest.mark.parametrize(("share", "astray"), [(1.0, True), (2.0**-10, True), (2.0**-20, False)])
def test_what_lies_beyond_rounding_in_its_graph_lies_there_on_other_inputs_too(share: float, astray: bool) -> None:
    side = taped(work)
    pair = Sides(side, taped(work)).pair()
    [number] = [at for at, node in enumerate(pair.flows["b"].nodes) if node.call.name == "exp"]
    node, x = pair.flows["b"].nodes[number], torch.linspace(1, 2, 8)
    given = x.exp() * (1 - share)
    digests = [list(one) for one in ReplayedKernels(lambda: side).digests()]
    digests[node.execution.position] = [digest_of(given)]
    # what follows takes what was given, and gives what comes of that
    following = node.execution.position + 1
    digests[following] = [digest_of(given.sum())]
    found, kernels, _ = verify(pair, "b", digests, cast(WorkerCalls, Alone(given)), UnrepeatableCalls())
    assert isinstance(kernels, SideKernels) and found.in_context == {number}
    assert is_same(kernels.execute(PreparedCall(number, node, (x,), {}))[0], given)
    assert found.astray == ({number} if astray else set())
    other = x + 0.25
    expected = other.exp().double() - (x.exp().double() - given.double()) if astray else other.exp().double()
    assert is_same(kernels.execute(PreparedCall(number, node, (other,), {}))[0], expected.float())


def test_a_value_that_is_nothing_but_rounding_is_not_astray() -> None:
    def cancelling(saw: Callable[[str, Tensor], None]) -> None:
        x = torch.linspace(1, 2, 8).mul(1.0)
        saw("loss 0", torch.cat([x, -x - 1e-7]).sum())

    side = taped(cancelling)
    pair = Sides(side, taped(cancelling)).pair()
    [number] = [at for at, node in enumerate(pair.flows["b"].nodes) if node.call.name == "sum"]
    digests = [list(one) for one in ReplayedKernels(lambda: side).digests()]
    position = pair.flows["b"].nodes[number].execution.position
    loss = side.expected()["loss 0"]
    for share, astray in ((2.0, False), (1e6, True)):
        given = loss * (1 + share)
        digests[position] = [digest_of(given)]
        found, *_ = verify(pair, "b", digests, cast(WorkerCalls, Alone(given, "sum")), UnrepeatableCalls())
        assert found.in_context == {number} and found.astray == ({number} if astray else set())


def test_an_op_that_refuses_moved_inputs_has_no_distance() -> None:
    # given a draw with probabilities of 1, which rounding would move beyond 1, and other numbers in the graph
    def drawing(saw: Callable[[str, Tensor], None]) -> None:
        saw("loss 0", torch.bernoulli(torch.linspace(1, 1, 8).mul(1.0)))

    side = taped(drawing)
    pair = Sides(side, taped(drawing)).pair()
    [number] = [at for at, node in enumerate(pair.flows["b"].nodes) if node.call.name == "bernoulli"]
    given = torch.zeros(8)
    digests = [list(one) for one in ReplayedKernels(lambda: side).digests()]
    digests[pair.flows["b"].nodes[number].execution.position] = [digest_of(given)]
    found, *_ = verify(pair, "b", digests, cast(WorkerCalls, Alone(given, "bernoulli")), UnrepeatableCalls())
    assert found.in_context == {number} and not found.astray


def test_values_on_which_no_known_one_depends_are_doubted() -> None:
    # given a step whose worker cannot tell any value, such as one that does not repeat its own bits
    side = taped(work)
    compiled = replace(
        side,
        calls=tuple(replace(call, compiled=CompiledNode("0 forward", call.name, call.op, 0)) for call in side.calls),
    )
    pair = Sides(side, compiled).pair()
    names = [node.call.name for node in pair.flows["b"].nodes]
    digests: list[list[str | None]] = [[None] * len(each) for each in ReplayedKernels(lambda: side).digests()]
    asked: list[str] = []

    class Asked(Alone):
        def prepare(self, nodes: Sequence[FlowNode]) -> None:
            asked.extend(node.call.name for node in nodes)

    verify(pair, "b", digests, cast(WorkerCalls, Asked(torch.zeros(()))), UnrepeatableCalls())
    # then its worker executes all of its calls
    assert asked == names
    # but if a value that depends on them is known, and plain kernels compute it, they need no other kernel
    asked.clear()
    known = [list(each) for each in ReplayedKernels(lambda: side).digests()]
    last = pair.flows["b"].nodes[names.index("sum")].execution.position
    digests[last] = [*known[last]]
    verify(pair, "b", digests, cast(WorkerCalls, Asked(torch.zeros(()))), UnrepeatableCalls())
    assert asked == []


@pytest.mark.parametrize("differs", [False, True])
def test_unknown_values_are_doubted_only_where_what_reads_them_differs(differs: bool) -> None:
    # given a graph whose `mul` and `exp` are fused into the `sum` that reads them
    side = taped(work)
    compiled = replace(
        side,
        calls=tuple(replace(call, compiled=CompiledNode("0 forward", call.name, call.op, 0)) for call in side.calls),
    )
    pair = Sides(side, compiled).pair()
    names = {node.call.name: number for number, node in enumerate(pair.flows["b"].nodes)}
    digests: list[list[str | None]] = [list(each) for each in ReplayedKernels(lambda: side).digests()]
    for name in ("mul", "exp"):
        digests[pair.flows["b"].nodes[names[name]].execution.position] = [None]
    asked: list[str] = []

    class Fused(Alone):
        def prepare(self, nodes: Sequence[FlowNode]) -> None:
            asked.extend(node.call.name for node in nodes)

    given = side.expected()["loss 0"] * 1.5
    if differs:
        digests[pair.flows["b"].nodes[names["sum"]].execution.position] = [digest_of(given)]
    found, *_ = verify(pair, "b", digests, cast(WorkerCalls, Fused(given, "sum")), UnrepeatableCalls())
    assert {names["mul"], names["exp"]} <= found.unknown
    assert asked == (["mul", "exp", "sum"] if differs else [])
    assert found.in_context == ({names["sum"]} if differs else set())
