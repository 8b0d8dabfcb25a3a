"""Reads that come too late, in graphs whose real results are made here as a wrong order of reads and writes makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import StorageFlow, flow_of
from numdrift.harness.localize.execute.late_reads import LateRead, late_read
from numdrift.harness.tape.replaying.replay import AsRecorded, Replay
from numdrift.harness.tape.tape import CompiledNode, Tape, Watched

from .pairs import taped

X = torch.linspace(-3, 3, 24).view(4, 6)
PLANE = torch.complex(X / 8, X.flip(1) / 8)
WORDS = (torch.arange(24) * 37 % 1009).view(4, 6)


def shifted(x: Tensor) -> Tensor:
    return torch.roll(x, 1, 0)


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of ops without writes in place, as compilers have them.

    script: computes it. wrong: what the last of `reads` really returned, from what it returns alone, and from what the
    later content gives. known: the names of ops whose results are known; all, by default.
    """

    script: Callable[[Tensor], Tensor]
    start: Tensor
    of: str
    wrong: Callable[[Tensor, Tensor], Tensor]
    late: Callable[[Tensor], Tensor]
    expected: tuple[str, str] | None
    unknown: tuple[str, ...] = ()


def halves(alone: Tensor, late: Tensor) -> Tensor:
    return torch.cat([alone[:2], late[2:]])


def all_late(alone: Tensor, late: Tensor) -> Tensor:
    return late


def mirrored(x: Tensor) -> Tensor:
    return x + x.flip(0)


def counted(x: Tensor) -> Tensor:
    words = x * 3
    filled = torch.full_like(x, 7)
    return torch.remainder(words + 5, 64) + filled


def cloned(x: Tensor) -> Tensor:
    kept = x.sin()
    return (x * 2).exp() + kept


GRAPHS = {
    # the sum is written over what the flip still reads
    "a buffer overwritten while it is read": Graph(
        mirrored, X, "flip", halves, lambda x: mirrored(x).flip(0), ("flip", "add")
    ),
    # the product of the later content; its own value and that of the sum are not known
    "a whole read after the write": Graph(
        counted, WORDS, "remainder", all_late, lambda x: torch.full_like(x, 7 * 3 + 5), ("mul", "full_like"), ("mul", "add")
    ),
    "a copy left out": Graph(cloned, X, "sin", all_late, lambda x: (x * 2).sin(), ("sin", "mul")),
    "within rounding of the later content": Graph(
        cloned, X, "sin", lambda alone, late: late * (1 + 2e-7), lambda x: (x * 2).exp().sin(), ("sin", "exp")
    ),
    "complex numbers within rounding of the later content": Graph(
        cloned, PLANE, "sin", lambda alone, late: late * (1 + 2e-7), lambda x: (x * 2).exp().sin(), ("sin", "exp")
    ),
    "complex numbers of a wrong kernel": Graph(cloned, PLANE, "sin", lambda alone, late: alone * 1.001, torch.sin, None),
    "another rounding": Graph(cloned, X, "sin", lambda alone, late: alone * (1 + 2e-7), torch.sin, None),
    "a wrong kernel": Graph(cloned, X, "sin", lambda alone, late: alone * 1.001, torch.sin, None),
    "one element that is neither": Graph(
        mirrored, X, "flip", lambda alone, late: torch.cat([halves(alone, late)[:3], late[3:] + 1]),
        lambda x: mirrored(x).flip(0), None,
    ),
    # two values are possible: a few elements agree with whatever is later
    "what chance explains": Graph(
        lambda x: torch.remainder(x, 2) + x * 3, WORDS, "remainder",
        lambda alone, late: torch.cat([alone[:3], 1 - alone[3:]]), lambda x: x, None,
    ),
}  # fmt: skip


def as_graph(plain: Tape) -> Tape:
    """The tape as that of one compiled graph."""
    calls = [
        replace(call, compiled=CompiledNode("0 forward", f"node_{number}", call.op, number))
        for number, call in enumerate(plain.calls)
    ]
    return replace(plain, calls=tuple(calls))


def results_of(flow: StorageFlow) -> list[list[Tensor]]:
    """The results of each node, executed alone."""
    uses = [(number, use) for number, node in enumerate(flow.nodes) for use in node.made]
    ends = tuple(
        Watched(flow.nodes[number].execution.position + 1, str(at), use.view, torch.empty(0))
        for at, (number, use) in enumerate(uses)
    )
    shown = Replay(replace(flow.tape, watched=ends)).run(AsRecorded())
    results: list[list[Tensor]] = [[] for _ in flow.nodes]
    for at, (number, _) in enumerate(uses):
        results[number].append(shown[str(at)])
    return results


def graph_of(case: Graph) -> tuple[Tape, list[list[Tensor]], int]:
    """The tape as that of a compiled graph, the results of each call executed alone, and the call that goes wrong."""
    start = case.start.clone()
    tape = as_graph(taped(lambda watch: watch("loss 0", case.script(start))))
    flow = flow_of(tape)
    return tape, results_of(flow), next(n for n, node in enumerate(flow.nodes) if node.call.name == case.of)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_read_is_late_if_every_element_says_so(name: str) -> None:
    # given the real results of every call, one of which is not what it computes alone
    case = GRAPHS[name]
    tape, results, number = graph_of(case)
    flow = flow_of(tape)
    real = case.wrong(results[number][0], case.late(case.start))
    unknown = {n for n, node in enumerate(flow.nodes) if node.call.name in case.unknown and n < number}

    def recorded(node: int) -> Sequence[Tensor] | None:
        return None if node in unknown else [real] if node == number else results[node]

    # when
    found = late_read(flow, number, recorded)
    # then
    names = None if found is None else (flow.nodes[found.reader].call.name, flow.nodes[found.writer].call.name)
    assert names == case.expected
    if found is not None:
        assert found.share == (0.5 if case.wrong is halves else 1.0)


def halved(x: Tensor) -> Tensor:
    """Reads both results of one call, neither of which is known."""
    values, order = x.sort(1)
    return (values * 2 + order) + x


def test_a_node_of_several_results_that_are_not_known_is_no_error() -> None:
    # given a wrong sum of two results of a sort: to replace one of them leaves out the other, too
    case = Graph(halved, X, "add", all_late, lambda x: x, None, ("sort", "mul"))
    tape, results, number = graph_of(case)
    flow = flow_of(tape)
    unknown = {n for n, node in enumerate(flow.nodes) if node.call.name in case.unknown}
    real = [results[number][0] + 1]
    assert late_read(flow, number, lambda n: None if n in unknown else real if n == number else results[n]) is None


def spread(x: Tensor) -> Tensor:
    """Reads one number as if it were as many as the later values."""
    return x.sum().expand(4, 6) * 2 + x.sin()


def looked_up(x: Tensor) -> Tensor:
    """Reads places; the later values of the same memory are none."""
    return torch.arange(4)[x % 4] + x * 1000


@pytest.mark.parametrize(("script", "start", "of"), [(spread, X, "mul"), (looked_up, WORDS, "index")])
def test_a_later_content_that_an_op_cannot_read_explains_nothing(
    script: Callable[[Tensor], Tensor], start: Tensor, of: str
) -> None:
    case = Graph(script, start, of, all_late, lambda x: x, None)
    tape, results, number = graph_of(case)
    real = [results[number][0] + 1]
    assert late_read(flow_of(tape), number, lambda n: real if n == number else results[n]) is None


def test_what_is_not_known_decides_nothing() -> None:
    case = GRAPHS["a copy left out"]
    tape, results, number = graph_of(case)
    flow = flow_of(tape)
    assert late_read(flow, number, lambda node: None) is None
    # the later content is not known
    real = [case.late(case.start)]
    assert late_read(flow, number, lambda node: real if node == number else None) is None
    # what it computes alone
    assert late_read(flow, number, lambda node: results[node]) is None
    assert isinstance(late_read(flow, number, lambda node: real if node == number else results[node]), LateRead)
