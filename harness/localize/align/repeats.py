"""The values that a step computes more than once from the same inputs."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence

from .storage_flow import FlowValue, StorageFlow, layout_of


def recomputed(flow: StorageFlow) -> dict[int, int]:
    """Return the nodes that compute a value again, most of them in a compiled backward, each with the first such node.

    A node that reads memory too late, and a node that reads its result, do not compute the same value again.
    """
    repeated = repetitions(flow)
    misled = {*late_repeats(flow, repeated)}
    for number in sorted(repeated) if misled else ():
        if any(flow.makers.get(use.value) in misled for use in flow.nodes[number].reads):
            misled.add(number)
    return {number: first for number, first in repeated.items() if number not in misled}


def repetitions(flow: StorageFlow) -> dict[int, int]:
    """Return the nodes of compiled backward graphs that recompute a node of the forward graph, each with that node.

    A partitioner recomputes nodes to save memory, and keeps their names. A node that reads a gradient is not
    recomputed, even if it has a forward node's name: a compiler pass may have chosen a name that was free in its graph.
    """
    forward: dict[Hashable, int] = {}
    repeated: dict[int, int] = {}
    gradients = set[int]()  # nodes of backward graphs that compute something new
    positions = {node.execution.position: number for number, node in enumerate(flow.nodes)}
    for number, node in enumerate(flow.nodes):
        compiled, sequence = node.call.compiled, node.call.sequence
        if node.call.repeats is not None:  # lazy recomputes values that were not kept
            repeated[number] = positions[node.call.repeats]
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
            repeated[number] = forward[key]
        elif node.reads:  # a constant is not a gradient
            gradients.add(number)
    return repeated


_firsts_alike: weakref.WeakKeyDictionary[StorageFlow, dict[int, int]] = weakref.WeakKeyDictionary()
"""The result of `alike`, which a pair needs several times."""


def alike(flow: StorageFlow) -> Mapping[int, int]:
    """Return each node with the first node that computes the same values from the same inputs, often the node itself.

    Nodes that draw, write or return views are left out. In eager mode, views are not nodes, but the copies that replace
    views in other modes are.

        a = arange(8); b = arange(8); a * x; b * x    the second arange repeats the first, so b * x repeats a * x
    """
    if flow in _firsts_alike:
        return _firsts_alike[flow]
    firsts: dict[Hashable, int] = {}
    first_values: dict[FlowValue, FlowValue] = {}
    first_of: dict[int, int] = {}
    for number, node in enumerate(flow.nodes):
        call = node.call
        if node.writes or call.draw is not None or call.repeats is not None or None in node.makes:
            continue
        key: list[Hashable] = [call.op, *call.keywords]
        for leaf, use in node.arguments:
            if use is None:
                key += [type(leaf).__name__, repr(leaf)]
            else:
                key += [first_values.get(use.value, use.value), use.view.dtype, layout_of(use.view)]
        first = first_of[number] = firsts.setdefault(tuple(key), number)
        for repeated_use, first_use in zip(node.makes, flow.nodes[first].makes, strict=True):
            if repeated_use is not None and first_use is not None:
                first_values[repeated_use.value] = first_use.value
    _firsts_alike[flow] = first_of
    return first_of


def again_within(flow: StorageFlow, units: Iterable[Sequence[int]]) -> dict[int, int]:
    """Return the nodes that repeat the computation of an earlier node, in a backward graph or within the same unit,
    each with the earlier node."""
    first_alike, repeated = alike(flow), recomputed(flow)
    for nodes in units:
        firsts: dict[int, int] = {}
        for number in sorted(nodes):
            if number not in repeated and firsts.setdefault(first_alike.get(number, number), number) != number:
                repeated[number] = firsts[first_alike[number]]
    return repeated


def late_repeats(flow: StorageFlow, repeated: Mapping[int, int]) -> dict[int, int]:
    """Return those of the `repetitions` in compiled graphs that read memory too late, each with the node that made the
    content that they read: the memory was overwritten after the node that they repeat.

    Such a node does not compute the same value again (pytorch#197039):

        forward    centred = x - mean; new = 0.9 * mean + 0.1 * m; mean.copy_(new)
        backward   centred = x - mean    reads what the forward has written: it is late, because of `new`
    """
    late = dict[int, int]()
    for number, first in repeated.items():
        if flow.nodes[number].call.compiled is None:
            continue
        for use, first_use in zip(flow.nodes[number].reads, flow.nodes[first].reads, strict=False):
            is_later = use.value.version > first_use.value.version
            if use.value.slot == first_use.value.slot and is_later and use.value in flow.makers:
                late.setdefault(number, copied_from(flow, flow.makers[use.value]))
    return late


def copied_from(flow: StorageFlow, writer: int) -> int:
    """Return the node that made the value which a copy writes; the node itself if it is no copy."""
    node = flow.nodes[writer]
    maker = flow.makers.get(node.reads[-1].value) if node.call.name == "copy_" and node.reads else None
    return writer if maker is None else maker
