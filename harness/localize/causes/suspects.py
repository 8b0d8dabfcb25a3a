"""The suspects: blocks of two tapes that may differ, judged by the arguments of their calls without executing them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from ...records.results.culprit import AGAIN, REDRAWN
from ...tape.origin import line_of
from ...tape.tape import SCRATCH
from ...torch_private.operators import view_behind
from ..align.argument_differences import (
    FOLDED,
    GENERATOR,
    LAYOUT,
    PART,
    TURNED,
    WIRING,
    argument_differences,
    drawn_reasons,
    draws_differ,
    epsilon_difference,
)
from ..align.op_units import op_name
from ..align.storage_flow import SIDES, FlowNode, Side
from ..execute.tape_pair import TapePair

Kind = Literal["kernel", "layout", "arguments", "structure", "setup", "setting", "order"]

CASTS = frozenset(("_to_copy", "convert_element_type"))
"""Ops that change the dtype and compute nothing."""

UNROUNDED = "its compiled graph does not round the value from"
"""The beginning of a reason: in the graph, the node's inputs have more digits than their dtype can hold, and its
results match these unrounded inputs."""

READ = (WIRING, LAYOUT, PART)
"""Reasons that concern the inputs of one call, and do not carry over to other calls."""

KINDS: Mapping[tuple[str, ...], Kind] = {
    (WIRING,): "structure",
    (LAYOUT,): "kernel",
    (TURNED,): "kernel",
    (TURNED, WIRING): "structure",
    (FOLDED,): "kernel",
}
"""The kind of a suspect that has these reasons and no others."""

MOST_LISTED = 6

DRAWS = f"draws different random numbers: {GENERATOR}"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A block in which the sides may compute different results, and the reasons for it.

    reader: for a block of kind `order`, the call that reads memory too late. Its result may only show in a later call,
        which is the block's.
    """

    block: int
    kind: Kind
    reasons: tuple[str, ...]
    reader: FlowNode | None = None


def suspects(pair: TapePair) -> dict[int, Suspect]:
    """Return the suspects among all blocks, by number.

    A block that computes the same tensors with different ops on the two sides is a suspect, too: only executing it
    shows whether the results differ.
    """
    suspected: dict[int, Suspect] = {}
    for number in range(len(pair.blocks)):
        nodes = _executed_once(pair, number)
        if nodes is None:
            if not pair.all_names(number) <= {*SCRATCH} and not _only_copies(pair, number):
                suspected[number] = _unpaired(pair, number)
            continue
        node_a, node_b = nodes
        reasons = drawn_reasons(node_a, node_b, argument_differences(node_a, node_b, pair.links))
        if draws_differ(node_a, node_b) or GENERATOR in reasons:
            suspected[number] = Suspect(
                number, "setup", (DRAWS, *(reason for reason in reasons if reason != GENERATOR))
            )
        elif reasons:
            kind: Kind = KINDS.get(tuple(reasons), "arguments")
            suspected[number] = Suspect(number, kind, tuple(reasons))
        elif node_a.call.op != node_b.call.op:
            suspected[number] = Suspect(number, "kernel", (f"{node_a.call.op} against {node_b.call.op}",))
        elif _devices(pair, "a", node_a) != _devices(pair, "b", node_b):
            suspected[number] = Suspect(number, "kernel", ())
        if {WIRING, TURNED, FOLDED}.intersection(reasons) or any(reason.startswith("shape ") for reason in reasons):
            pair.own_reads.add(number)
    return suspected


def _executed_once(pair: TapePair, number: int) -> tuple[FlowNode, FlowNode] | None:
    """Return the two calls of a pair, without repetitions that return the same results; None for other blocks."""
    repeats = [node for node in pair.all_nodes(number) if node.call.repeats is not None]
    if not pair.blocks[number].paired or any(node.call.draw is not None or node.writes for node in repeats):
        return None
    nodes_a, nodes_b = ([node for node in pair.nodes(number, side) if node.call.repeats is None] for side in SIDES)
    return (nodes_a[0], nodes_b[0]) if len(nodes_a) == len(nodes_b) == 1 else None


def _devices(pair: TapePair, side: Side, node: FlowNode) -> set[str]:
    """Return the devices of a call's inputs and results; each device has its own kernels."""
    slots = pair.flows[side].tape.slots
    return {slots[use.value.slot].device for use in (*node.reads, *node.made)}


def _only_copies(pair: TapePair, number: int) -> bool:
    """Check whether a block contains only copies that replace views.

    Such copies compute nothing, and their effect shows in the layouts of the arguments of the calls that read them.
    """
    return all(view_behind(node.execution.operation) is not None for node in pair.all_nodes(number))


def _unpaired(pair: TapePair, number: int) -> Suspect:
    """Return the suspect for a block that is not one call on each side: one op in several calls, or different ops."""
    block = pair.blocks[number]
    late = _late(pair, number)
    if late is not None:
        return late
    ops_a, ops_b = listed(pair, number, "a"), listed(pair, number, "b")
    if block.paired:
        first = [[node for node in block.of(side) if node not in pair.links.again[side]] for side in SIDES]
        twice = any(len(members) == 1 < len(block.of(side)) for members, side in zip(first, SIDES, strict=True))
        why = _computed_again(pair, number) if twice else f"decomposed into {ops_b}"
        if not twice and len(block.of("b")) == 1:
            why = f"decomposed into {ops_a} in the reference"
        calls = [
            pair.flows[side].nodes[node] for members, side in zip(first, SIDES, strict=True) for node in members[:1]
        ]
        if twice and len(calls) == sum(map(len, first)) == len(SIDES) and calls[0].call.name == calls[1].call.name:
            differences = argument_differences(calls[0], calls[1], pair.links)
            reasons = [difference for difference in differences if difference not in (*READ, TURNED)]
            if WIRING in differences:
                pair.own_reads.add(number)
            if reasons or WIRING in differences:
                return Suspect(number, "arguments" if reasons else "structure", tuple(reasons) or (WIRING,))
        reasons = epsilon_difference(pair.nodes(number, "a"), pair.nodes(number, "b"))
        if reasons:
            return Suspect(number, "arguments", (*reasons, why))
        executed = _again(pair, number)
        return Suspect(number, "structure" if executed else "kernel", executed or (why,))
    if ops_a and ops_b:
        return Suspect(number, "structure", (f"{ops_a} against {ops_b}", *_again(pair, number)))
    side = "the reference" if ops_a else "the other mode"
    return Suspect(number, "structure", (f"only {side} executes {ops_a or ops_b}",))


def _late(pair: TapePair, number: int) -> Suspect | None:
    """Return the suspect for a block with a call that is repeated after what it reads was overwritten."""
    for side in SIDES:
        flow = pair.flows[side]
        for node in pair.blocks[number].of(side):
            if node in pair.late[side]:
                reader = flow.nodes[node]
                overwritten = overwritten_before(flow.nodes[pair.late[side][node]], reader)
                return Suspect(number, "order", (f"again in the backward, {overwritten}",), reader)
    return None


def overwritten_before(writer: FlowNode, reader: FlowNode) -> str:
    """Describe a read that comes too late: `after add (model.py:28) has overwritten what sub reads`."""
    line = f" ({PurePath(line_of(writer.call.frames[0])).name})" if writer.call.frames else ""
    return f"after {op_name(writer)}{line} has overwritten what {op_name(reader)} reads"


def _computed_again(pair: TapePair, number: int) -> str:
    sides = [side for side in SIDES if len(pair.blocks[number].of(side)) > 1]
    calls = [node.call for side in sides for node in pair.nodes(number, side)]
    if any(call.compiled is not None and call.compiled.graph.endswith("backward") for call in calls):
        return "executed once more in the backward"
    return f"computed more than once in {'the reference' if sides == ['a'] else 'the other mode'}"


def _again(pair: TapePair, number: int) -> tuple[str, ...]:
    """Return the reason why a block differs, if a side has executed one of the block's calls more than once, or has
    drawn its random numbers once more."""
    calls = [node.call for node in pair.all_nodes(number)]
    times = max(Counter(call.repeats for call in calls if call.repeats is not None).values(), default=0) + 1
    if times > 1:
        return (f"{AGAIN}, {times} times in all, because its results were not kept",)
    redrawn = any(
        node in pair.links.again[side] and (call := pair.flows[side].nodes[node].call).draw and call.compiled
        for side in SIDES
        for node in pair.blocks[number].of(side)
    )
    return (REDRAWN,) if redrawn else ()


def computing(nodes: Sequence[FlowNode]) -> list[FlowNode]:
    """Return the nodes without the copies that replace views, which compute nothing; all if there are no others."""
    return [node for node in nodes if view_behind(node.execution.operation) is None] or list(nodes)


def listed(pair: TapePair, number: int, side: Side) -> str:
    names = [node.call.name for node in computing(pair.nodes(number, side)) if node.call.repeats is None]
    if len(names) > 1 and len(set(names)) == 1:
        return f"{names[0]} ({len(names)} times)"
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")
