"""Where the script itself took another branch: a number that it read from a tensor, and that is another one
on the other side.

What the script then executes or leaves out is one cause, with the comparison that decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..tape.replay import set_apart
from ..tape.tape import View
from .hybrid import Mixture, MixtureExecution, TapePair
from .storage_flow import SIDES, FlowNode, Side
from .swap_sites import Cause

DIGITS = 9
"""Significant digits that tell any two float32 apart."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A read in `block` that gave the script other numbers. `made` are the nodes that made what was read."""

    block: int
    reads: Mapping[Side, int]
    made: Mapping[Side, int | None]


def with_decisions(pair: TapePair, causes: Sequence[Cause], labels: Mapping[Side, str]) -> list[Cause]:
    """Join the causes of kind `structure` that follow one decision, and name the decision in their
    reasons."""
    decisions = list(_decisions(pair))
    found: dict[object, Cause] = {}
    for place, cause in enumerate(causes):
        decision = _before(pair, cause, decisions) if cause.kind == "structure" else None
        key: object = place if decision is None else decision.block
        if key in found:
            found[key] = replace(found[key], sites=(*found[key].sites, *cause.sites))
        elif decision is not None:
            line = next((line for side in SIDES if (line := _node(pair, decision, side).call.line)), None)
            where = f" at {Path(line).name}" if line else ""
            said = [f"{_expression(pair, decision, side)} in {labels[side]}" for side in SIDES]
            in_words = f"the script took another branch{where}: {', '.join(said)}"
            found[key] = replace(cause, reasons=(in_words, *cause.reasons))
        else:
            found[key] = cause
    return list(found.values())


def _decisions(pair: TapePair) -> Iterator[Decision]:
    for number, block in enumerate(pair.blocks):
        if not block.is_pair:
            continue
        nodes = {side: pair.flows[side].nodes[block.of(side)[0]] for side in SIDES}
        given = [[one for one in nodes[side].call.outputs if not isinstance(one, View)] for side in SIDES]
        if given[0] and given[0] != given[1]:
            reads = {side: block.of(side)[0] for side in SIDES}
            yield Decision(number, reads, {side: _maker(pair, side, nodes[side]) for side in SIDES})


def _maker(pair: TapePair, side: Side, node: FlowNode) -> int | None:
    return pair.flows[side].makers.get(node.reads[0].value) if node.reads else None


def _before(pair: TapePair, cause: Cause, decisions: Sequence[Decision]) -> Decision | None:
    """The last decision before the cause. One about a truth or a count; about any other number, which a
    script also reads to print it, only if the cause begins with the very next op."""
    nodes = {side: [node for block in cause.blocks for node in pair.blocks[block].of(side)] for side in SIDES}

    def is_before(one: Decision) -> bool:
        return all(one.reads[side] < node for side in SIDES for node in nodes[side])

    def is_just_before(one: Decision) -> bool:
        return any(one.reads[side] + 1 in nodes[side] for side in SIDES)

    earlier = [one for one in decisions if one.block not in cause.blocks and is_before(one)]
    chosen = [one for one in earlier if not isinstance(_number(pair, one, "a"), float) or is_just_before(one)]
    return chosen[-1] if chosen else None


def _number(pair: TapePair, decision: Decision, side: Side) -> Any:
    outputs = pair.flows[side].nodes[decision.reads[side]].call.outputs
    return next(one for one in outputs if not isinstance(one, View))


def _node(pair: TapePair, decision: Decision, side: Side) -> FlowNode:
    return pair.flows[side].nodes[decision.reads[side]]


def _expression(pair: TapePair, decision: Decision, side: Side) -> str:
    """What was read and its number, as `gt(0.0551199913, 0.0551) is True`."""
    number = _text(_number(pair, decision, side))
    maker = decision.made[side]
    if maker is None:
        return f"{_node(pair, decision, side).call.name} is {number}"
    node = pair.flows[side].nodes[maker]
    values = iter(_read_by(pair, side, maker))
    arguments = [next(values) if isinstance(one, View) else _text(one) for one in node.call.arguments]
    return f"{node.call.name}({', '.join(arguments)}) is {number}"


def _read_by(pair: TapePair, side: Side, number: int) -> list[str]:
    """The tensors that a node reads, executed up to it as its own side has it."""
    node, home = pair.flows[side].nodes[number], pair.home[side][number]
    with set_apart(pair.devices()):
        execution = MixtureExecution(pair, Mixture(side))
        for block in range(home):
            execution.run(block)
        return [_text(execution.memory.tensor(side, use)) for use in node.reads]


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _text(value.item()) if value.numel() == 1 else f"tensor of {tuple(value.shape)}"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)
