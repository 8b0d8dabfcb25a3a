"""Which blocks of two tapes may differ, by what their calls are told; nothing is computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..records.culprit import AGAIN
from ..tape.tape import SCRATCH
from ..torch_private.operators import view_behind
from .argument_differences import (
    FOLDED,
    GENERATOR,
    LAYOUT,
    PART,
    TURNED,
    argument_differences,
    drawn_reasons,
    draws_differ,
    epsilon_difference,
)
from .hybrid import TapePair
from .storage_flow import SIDES, FlowNode, Side

Kind = Literal["kernel", "layout", "arguments", "structure", "setup", "setting"]

CASTS = frozenset(("_to_copy", "convert_element_type"))
"""Ops that change the dtype, and compute nothing."""

UNROUNDED = "its compiled graph does not round what"
"""How the reason begins of one that reads more digits in its graph than the dtype of its inputs has, and is exact on
those."""

WIRING = "reads another tensor"

READ = (WIRING, LAYOUT, PART)
"""Reasons that are of what one call reads, and say nothing of what others are told."""

KINDS: Mapping[tuple[str, ...], Kind] = {
    (WIRING,): "structure",
    (LAYOUT,): "kernel",
    (TURNED,): "kernel",
    (FOLDED,): "kernel",
}
"""What a call is that differs in nothing but this."""

DRAWS = f"draws other random numbers: {GENERATOR}"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A block in which the sides may compute different things, and what is seen of it."""

    block: int
    kind: Kind
    reasons: tuple[str, ...]


def suspects(pair: TapePair) -> dict[int, Suspect]:
    """Look at every block. What only makes the same tensors in other words is left to the experiment."""
    found: dict[int, Suspect] = {}
    for number in range(len(pair.blocks)):
        nodes = _executed_once(pair, number)
        if nodes is None:
            if not {*names_of(pair, number, "a"), *names_of(pair, number, "b")} <= {*SCRATCH} and not _only_copies(
                pair, number
            ):
                found[number] = _unpaired(pair, number)
            continue
        left, right = nodes
        reasons = drawn_reasons(left, right, argument_differences(left, right, pair.links))
        if draws_differ(left, right) or GENERATOR in reasons:
            found[number] = Suspect(number, "setup", (DRAWS, *(one for one in reasons if one != GENERATOR)))
        elif reasons:
            kind: Kind = KINDS.get(tuple(reasons), "arguments")
            found[number] = Suspect(number, kind, tuple(reasons))
        elif left.call.op != right.call.op:
            found[number] = Suspect(number, "kernel", (f"{left.call.op} against {right.call.op}",))
        elif _devices(pair, "a", left) != _devices(pair, "b", right):
            found[number] = Suspect(number, "kernel", ())
        if {WIRING, TURNED, FOLDED}.intersection(reasons) or any(reason.startswith("shape ") for reason in reasons):
            pair.own_reads.add(number)
    return found


def _executed_once(pair: TapePair, number: int) -> tuple[FlowNode, FlowNode] | None:
    """The two calls of a pair. What was executed again is left out where it gives the same again."""
    nodes = {side: [pair.flows[side].nodes[one] for one in pair.blocks[number].of(side)] for side in SIDES}
    again = [one for side in SIDES for one in nodes[side] if one.call.repeats is not None]
    if not pair.blocks[number].paired or any(one.call.draw is not None or one.writes for one in again):
        return None
    left, right = ([one for one in nodes[side] if one.call.repeats is None] for side in SIDES)
    return (left[0], right[0]) if len(left) == len(right) == 1 else None


def _devices(pair: TapePair, side: Side, node: FlowNode) -> set[str]:
    """The devices of what a call takes and gives: another device has kernels of its own."""
    slots = pair.flows[side].tape.slots
    return {slots[use.value.slot].device for use in (*node.reads, *node.made)}


def _only_copies(pair: TapePair, number: int) -> bool:
    """Whether a block has only copies in the place of views: they compute nothing, and what reads them is told by its
    layout."""
    nodes = [pair.flows[side].nodes[one] for side in SIDES for one in pair.blocks[number].of(side)]
    return all(view_behind(one.execution.operation) is not None for one in nodes)


def _unpaired(pair: TapePair, number: int) -> Suspect:
    """A block that is not one call on each side: one op in several calls, or other ops."""
    block = pair.blocks[number]
    left, right = listed(pair, number, "a"), listed(pair, number, "b")
    if block.paired:
        first = [[node for node in block.of(side) if node not in pair.links.again[side]] for side in SIDES]
        twice = any(len(one) == 1 < len(block.of(side)) for one, side in zip(first, SIDES, strict=True))
        why = _computed_again(pair, number) if twice else f"decomposed into {right}"
        if not twice and len(block.of("b")) == 1:
            why = f"decomposed into {left} in the reference"
        calls = [pair.flows[side].nodes[one] for ones, side in zip(first, SIDES, strict=True) for one in ones[:1]]
        if twice and len(calls) == sum(map(len, first)) == len(SIDES) and calls[0].call.name == calls[1].call.name:
            differences = argument_differences(calls[0], calls[1], pair.links)
            told = [one for one in differences if one not in (*READ, TURNED)]
            if told:
                return Suspect(number, "arguments", tuple(told))
        told = epsilon_difference(*([pair.flows[side].nodes[one] for one in block.of(side)] for side in SIDES))
        if told:
            return Suspect(number, "arguments", (*told, why))
        executed = _again(pair, number)
        return Suspect(number, "structure" if executed else "kernel", executed or (why,))
    if left and right:
        return Suspect(number, "structure", (f"{left} against {right}", *_again(pair, number)))
    side = "the reference" if left else "the other mode"
    return Suspect(number, "structure", (f"only {side} executes {left or right}",))


def _computed_again(pair: TapePair, number: int) -> str:
    sides = [side for side in SIDES if len(pair.blocks[number].of(side)) > 1]
    calls = [pair.flows[side].nodes[node].call for side in sides for node in pair.blocks[number].of(side)]
    if any(one.compiled is not None and one.compiled.graph.endswith("backward") for one in calls):
        return "executed once more in the backward"
    return f"computed more than once in {'the reference' if sides == ['a'] else 'the other mode'}"


def _again(pair: TapePair, number: int) -> tuple[str, ...]:
    """Why a block is another one where a side has executed a call of it more than once; empty where none has."""
    calls = [pair.flows[side].nodes[node].call for side in SIDES for node in pair.blocks[number].of(side)]
    times = max(Counter(one.repeats for one in calls if one.repeats is not None).values(), default=0) + 1
    return (f"{AGAIN}, {times} times in all, as what it gave was not kept",) if times > 1 else ()


def names_of(pair: TapePair, number: int, side: Side) -> list[str]:
    """The ops of a block on one side."""
    nodes = pair.flows[side].nodes
    return [nodes[node].call.name for node in pair.blocks[number].of(side)]


def listed(pair: TapePair, number: int, side: Side, most: int = 6) -> str:
    calls = [pair.flows[side].nodes[node].call for node in pair.blocks[number].of(side)]
    names: Sequence[str] = [one.name for one in calls if one.repeats is None]
    if len(names) > 1 and len(set(names)) == 1:
        return f"{names[0]} ({len(names)} times)"
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
