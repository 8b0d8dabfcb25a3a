"""Branches that the script took on one side only, because it read a different number from a tensor on each side.

The ops by which the branches differ are one cause, which is reported with the comparison that decided the branch:

    the script took a different branch at train.py:12: gt(0.0551199913, 0.0551) is True in cpu, gt(0.0550999902, ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...tape.replaying.replay import set_apart
from ...tape.tape import View
from ..align.op_units import op_name
from ..align.storage_flow import SIDES, Side
from ..execute.hybrid import Hybrid, HybridExecution
from ..execute.tape_pair import TapePair
from .site_causes import Cause

DIGITS = 9
"""The number of significant digits that distinguish any two float32 values."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A read in `block` that returned different numbers to the script.

    reads: by side, the node that reads.
    numbers: by side, the number that it returned.
    """

    block: int
    reads: Mapping[Side, int]
    numbers: Mapping[Side, Any]


def with_decisions(pair: TapePair, causes: Sequence[Cause], labels: Mapping[Side, str]) -> list[Cause]:
    """Join the causes of kind `structure` that follow the same decision, and name the decision in their reasons."""
    decisions = []
    for number, block in enumerate(pair.blocks):
        reads = {side: block.of(side)[0] for side in SIDES} if block.is_pair else {}
        outputs = {side: pair.flows[side].nodes[node].call.outputs for side, node in reads.items()}
        numbers = {side: [output for output in outputs.get(side, ()) if not isinstance(output, View)] for side in SIDES}
        if numbers["a"] and numbers["b"] and numbers["a"] != numbers["b"]:
            decisions.append(Decision(number, reads, {side: numbers[side][0] for side in SIDES}))
    joined: dict[tuple[str, int], Cause] = {}
    for place, cause in enumerate(causes):
        decision = _before(pair, cause, decisions) if cause.kind == "structure" else None
        key = ("cause", place) if decision is None else ("decision", decision.block)
        if key in joined:
            joined[key] = replace(joined[key], sites=(*joined[key].sites, *cause.sites))
        elif decision is not None:
            line = next(
                (line for side in SIDES if (line := pair.flows[side].nodes[decision.reads[side]].call.line)), None
            )
            at_line = f" at {Path(line).name}" if line else ""
            expressions = [f"{_expression(pair, decision, side)} in {labels[side]}" for side in SIDES]
            in_words = f"the script took a different branch{at_line}: {', '.join(expressions)}"
            joined[key] = replace(cause, reasons=(in_words, *cause.reasons))
        else:
            joined[key] = cause
    return list(joined.values())


def _before(pair: TapePair, cause: Cause, decisions: Sequence[Decision]) -> Decision | None:
    """Return the last qualifying decision before the cause.

    A decision about a truth value or a count always qualifies. A script may have read any other number just to print
    it, so a decision about such a number qualifies only if the cause begins with the very next op, and if the sides
    execute different ops: a compiler's decomposition of an op is no branch.
    """
    names = [
        {op_name(pair.flows[side].nodes[node]) for block in cause.blocks for node in pair.blocks[block].of(side)}
        for side in SIDES
    ]
    is_rewritten = not names[0].isdisjoint(names[1])
    nodes = {side: [node for block in cause.blocks for node in pair.blocks[block].of(side)] for side in SIDES}
    chosen = None
    for script_decision in decisions:
        before = all(script_decision.reads[side] < node for side in SIDES for node in nodes[side])
        just_before = any(script_decision.reads[side] + 1 in nodes[side] for side in SIDES)
        if (
            script_decision.block not in cause.blocks
            and before
            and (not isinstance(script_decision.numbers["a"], float) or (just_before and not is_rewritten))
        ):
            chosen = script_decision
    return chosen


def _expression(pair: TapePair, decision: Decision, side: Side) -> str:
    """Return the expression that the script read, with its value, such as `gt(0.0551199913, 0.0551) is True`."""
    flow, number = pair.flows[side], _text(decision.numbers[side])
    read = flow.nodes[decision.reads[side]]
    maker = flow.makers.get(read.reads[0].value) if read.reads else None
    if maker is None:
        return f"{read.call.name} is {number}"
    # Execute this side up to the maker, to get the tensors that the maker reads.
    node = flow.nodes[maker]
    with set_apart(pair.devices()):
        execution = HybridExecution(pair, Hybrid(side))
        for block in range(pair.home[side][maker]):
            execution.run(block)
        values = iter([_text(execution.memory.tensor(side, use)) for use in node.reads])
    arguments = [next(values) if isinstance(argument, View) else _text(argument) for argument in node.call.arguments]
    return f"{node.call.name}({', '.join(arguments)}) is {number}"


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _text(value.item()) if value.numel() == 1 else f"tensor of {tuple(value.shape)}"
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else str(value)
