"""The blocks in which two tapes may differ, before anything is computed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..tape.tape import SCRATCH
from .alignment import recomputed
from .argument_differences import LAYOUT, argument_differences, draws_differ
from .hybrid import Pair
from .storage_flow import SIDES, Side

Kind = Literal["kernel", "arguments", "structure", "setup"]

WIRING = "reads another tensor"
KINDS: Mapping[tuple[str, ...], Kind] = {(WIRING,): "structure", (LAYOUT,): "kernel"}
"""What a call is that differs in nothing but this."""

DRAWS = "draws other random numbers: the generator is at another state"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A block in which the sides may compute different things, and what is seen of it."""

    block: int
    kind: Kind
    reasons: tuple[str, ...]


def suspects(pair: Pair) -> dict[int, Suspect]:
    """Look at every block. What only makes the same tensors in other words is left to the experiment."""
    found: dict[int, Suspect] = {}
    again = {side: recomputed(pair.flows[side]) for side in SIDES}
    for number, block in enumerate(pair.blocks):
        if not block.is_pair:
            if not {*names_of(pair, number, "a"), *names_of(pair, number, "b")} <= {*SCRATCH}:
                found[number] = _unpaired(pair, number, again)
            continue
        left, right = pair.flows["a"].nodes[block.a[0]], pair.flows["b"].nodes[block.b[0]]
        reasons = argument_differences(left, right, pair.links)
        if draws_differ(left, right):
            found[number] = Suspect(number, "setup", (DRAWS, *reasons))
        elif reasons:
            kind: Kind = KINDS.get(tuple(reasons), "arguments")
            found[number] = Suspect(number, kind, tuple(reasons))
        elif left.call.op != right.call.op:
            found[number] = Suspect(number, "kernel", (f"{left.call.op} against {right.call.op}",))
        if WIRING in reasons or any(reason.startswith("shape ") for reason in reasons):
            pair.own_reads.add(number)
    return found


def _unpaired(pair: Pair, number: int, again: Mapping[Side, Collection[int]]) -> Suspect:
    block = pair.blocks[number]
    if block.paired:
        return Suspect(number, "kernel", (_in_parts(pair, number, again),))
    left, right = listed(pair, number, "a"), listed(pair, number, "b")
    if left and right:
        return Suspect(number, "structure", (f"{left} against {right}",))
    side = "the reference" if left else "the other mode"
    return Suspect(number, "structure", (f"only {side} executes {left or right}",))


def _in_parts(pair: Pair, number: int, again: Mapping[Side, Collection[int]]) -> str:
    """How one op became several calls."""
    block = pair.blocks[number]
    for side in SIDES:
        first = [node for node in block.of(side) if node not in again[side]]
        if len(first) == 1 and len(block.of(side)) > 1:
            return "executed once more in the backward"
    return f"decomposed into {listed(pair, number, 'b')}"


def names_of(pair: Pair, number: int, side: Side) -> list[str]:
    """The ops of a block on one side."""
    nodes = pair.flows[side].nodes
    return [nodes[node].call.name for node in pair.blocks[number].of(side)]


def listed(pair: Pair, number: int, side: Side, most: int = 6) -> str:
    names: Sequence[str] = names_of(pair, number, side)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
