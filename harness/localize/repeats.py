"""What a step computes more than once from the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from ..tape.tape import View, leaves
from .storage_flow import FlowValue, StorageFlow


def recomputed(flow: StorageFlow) -> dict[int, int]:
    """The nodes of compiled backward graphs that compute once more what a node of the forward graph has
    computed, with that node: a partitioner keeps the names of what it executes again to save memory. What reads a
    gradient is no such node: a pass may have given it a name that was free in its graph."""
    forward: dict[Hashable, int] = {}
    found: dict[int, int] = {}
    gradients = set[int]()  # nodes of backward graphs that compute something new
    positions = {node.execution.position: number for number, node in enumerate(flow.nodes)}
    for number, node in enumerate(flow.nodes):
        compiled, sequence = node.call.compiled, node.call.sequence
        if node.call.repeats is not None:  # lazy tensors execute again what was not kept
            found[number] = positions[node.call.repeats]
            continue
        if compiled is None or sequence is None:
            if compiled is None and node.call.phase == "backward":
                gradients.add(number)
            continue
        region, _, direction = compiled.graph.partition(" ")
        key = (region, compiled.name, sequence)
        if direction == "forward":
            forward[key] = number
        elif key in forward and gradients.isdisjoint(flow.makers.get(use.value, -1) for use in node.reads):
            found[number] = forward[key]
        elif node.reads:  # a constant is no gradient
            gradients.add(number)
    return found


def alike(flow: StorageFlow) -> dict[int, int]:
    """The nodes that compute what others compute, from the same, each with the first of them, which has itself.

    What draws or writes computes nothing else may compute; what has a copy of a view is no node of eager mode.

        a = arange(8); b = arange(8); a * x; b * x    the second arange with the first, and so the products
    """
    firsts: dict[Hashable, int] = {}
    stands: dict[FlowValue, FlowValue] = {}
    found: dict[int, int] = {}
    for number, node in enumerate(flow.nodes):
        call = node.call
        if node.writes or call.draw is not None or call.repeats is not None or None in node.makes:
            continue
        reads = iter(node.reads)
        told: list[Hashable] = [call.op, *call.keywords]
        for leaf in leaves([*call.arguments, *call.keywords.values()]):
            if isinstance(leaf, View):
                use = next(reads)
                view = use.view
                told += [stands.get(use.value, use.value), view.dtype, view.offset, view.size, view.stride]
            else:
                told += [type(leaf).__name__, repr(leaf)]
        first = found[number] = firsts.setdefault(tuple(told), number)
        for again, made in zip(node.makes, flow.nodes[first].makes, strict=True):
            if again is not None and made is not None:
                stands[again.value] = made.value
    return found


def again_within(flow: StorageFlow, units: Iterable[Sequence[int]]) -> dict[int, int]:
    """The nodes that compute once more what was computed before, with that node: in a backward graph, or as another
    node of the same unit that computes the same."""
    same, found = alike(flow), recomputed(flow)
    for nodes in units:
        firsts: dict[int, int] = {}
        for number in sorted(nodes):
            if number not in found and firsts.setdefault(same.get(number, number), number) != number:
                found[number] = firsts[same[number]]
    return found
