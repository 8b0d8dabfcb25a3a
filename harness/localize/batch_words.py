"""What makes a batch another one, in words.

triu (train.py:32) is given diagonal=0 in bad, 1 in cpu
only bad executes _to_copy with dtype=int8 (train.py:31)
randint (train.py:31) draws other numbers: the generator is at another state after rand (train.py:30), which ...
no op of the step made it (float32 [8, 4], 3 of 32 elements differ, by up to 0.5; first read by addmm (...)): it ...
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ..records.culprit import SETUP
from ..tape.tape import GeneratorState, View, leaves
from ..torch_private.operators import argument_names
from .alignment import op_name
from .examination import WIRING, Examined
from .hybrid import TapePair
from .storage_flow import SIDES, FlowNode, FlowValue, Side
from .swap_sites import Cause
from .value_links import plain_text

Labels = Mapping[Side, str]

Begins = Literal["step", "script"]
"""Of what the tapes are: of a step, or of all that a script does before its first one."""

BEFORE = "before the step, or from "


def how_apart(mine: torch.Tensor, theirs: torch.Tensor) -> str:
    """Shape, dtype, and how far two tensors are apart: `float32 [8, 4], 3 of 32 elements differ, by up to 0.5`."""
    told = f"{plain_text(mine.dtype)} {list(mine.shape)}"
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return f"{told} against {plain_text(theirs.dtype)} {list(theirs.shape)}"
    differ = ~torch.isclose(mine, theirs, rtol=0.0, atol=0.0, equal_nan=True)
    count = f"{int(differ.sum())} of {mine.numel()} elements differ"
    if mine.dtype == torch.bool:
        return f"{told}, {count}"
    apart = (mine[differ].to(torch.complex128) - theirs[differ].to(torch.complex128)).abs()
    return f"{told}, {count}, by up to {float(apart.max()) if apart.numel() else 0.0:.3g}"


def what_it_does(
    pair: TapePair, examined: Mapping[int, Examined], part: Cause, labels: Labels, begins: Begins
) -> tuple[str, str | None, str | None]:
    """What it does, and its op and line."""
    if not part.sites:
        return _outside(pair, part.inputs, begins)
    flagged = [one for one in sorted(part.blocks) if one in examined and examined[one].differs is not False]
    lead = min(flagged or part.blocks)
    nodes = {side: [pair.flows[side].nodes[node] for node in pair.blocks[lead].of(side)] for side in SIDES}
    first = (nodes["b"] or nodes["a"])[0]
    what, op = _placed(first), f"{first.call.op.split('.')[0]}.{op_name(first)}"
    if part.kind == SETUP:
        text = f"{what} draws other numbers: {_draw_before(pair, labels, begins)}"
    elif pair.blocks[lead].is_pair and part.kind == "arguments":
        left, right = nodes["a"][0], nodes["b"][0]
        text = f"{what} is given {_told_otherwise(left, right, labels) or ', '.join(part.reasons)}"
    elif not nodes["a"] or not nodes["b"]:
        side: Side = "b" if nodes["b"] else "a"
        text = f"only {labels[side]} executes {', '.join(_with_arguments(one) for one in nodes[side])}"
    elif part.kind == "kernel" and [one.call.op for one in nodes["a"]] == [one.call.op for one in nodes["b"]]:
        text = f"{what} gives other values in {labels['b']} on equal inputs"
    elif WIRING in part.reasons:
        text = f"{what} reads another tensor in {labels['b']} than in {labels['a']}"
    else:
        left_, right_ = (", ".join(_with_arguments(one) for one in nodes[side]) for side in SIDES)
        text = f"{labels['b']} executes {right_} where {labels['a']} executes {left_}"
    return text, op, first.call.line


def _placed(node: FlowNode, told: str = "") -> str:
    line = f" ({Path(node.call.line).name})" if node.call.line else ""
    return f"{op_name(node)}{told}{line}"


def _arguments(node: FlowNode) -> dict[str, Any]:
    """What a call takes by name, defaults included, but for its tensors."""
    call, found = node.call, dict[str, Any]()
    for place, (name, default) in enumerate(argument_names(node.execution.operation)):
        value = call.arguments[place] if place < len(call.arguments) else call.keywords.get(name, default)
        if not any(isinstance(one, (View, GeneratorState)) for one in leaves(value)):
            found[name] = value
    return found


def _told_otherwise(left: FlowNode, right: FlowNode, labels: Labels) -> str:
    """`diagonal=0 in bad, 1 in cpu`, for each argument that is no tensor."""
    ours, theirs = _arguments(left), _arguments(right)
    told = [
        f"{name}={plain_text(theirs[name])} in {labels['b']}, {plain_text(ours[name])} in {labels['a']}"
        for name in ours
        if name in theirs and ours[name] != theirs[name]
    ]
    if left.call.op != right.call.op:  # overloads of one op, which may have other arguments
        own: tuple[tuple[Side, dict[str, Any], dict[str, Any]], ...] = (("b", theirs, ours), ("a", ours, theirs))
        for side, known, lacking in own:
            told += [
                f"{name}={plain_text(known[name])} in {labels[side]} alone" for name in known if name not in lacking
            ]
    return " and ".join(told)


def _with_arguments(node: FlowNode) -> str:
    """`mul with other=1.25 (train.py:31)`: what is not the default."""
    defaults = dict(argument_names(node.execution.operation))
    told = [f"{name}={plain_text(value)}" for name, value in _arguments(node).items() if value != defaults[name]]
    quiet = {"layout=strided", "device=cpu", "pin_memory=False"}
    told = [one for one in told if one not in quiet]
    return _placed(node, f" with {', '.join(told)}" if told else "")


def _draw_before(pair: TapePair, labels: Labels, begins: Begins) -> str:
    """Which draw from torch's generator was the last that both sides began in one state: the two went apart by it."""
    drawing = {
        side: [node for node in pair.flows[side].nodes if node.call.draw is not None and node.call.draw.states]
        for side in SIDES
    }
    before: tuple[FlowNode, FlowNode] | None = None
    for left, right in zip(drawing["a"], drawing["b"], strict=False):
        ours, theirs = (one.call.draw.states[0] for one in (left, right) if one.call.draw is not None)
        if not torch.equal(ours.state, theirs.state):
            break
        before = (left, right)
    else:
        return "a generator that the script made is at another state"
    if before is None:
        return f"the generator is at another state where the {begins} begins to draw"
    homes = {
        side: pair.home[side][next(n for n, one in enumerate(pair.flows[side].nodes) if one is node)]
        for side, node in zip(SIDES, before, strict=True)
    }
    moved = "the generator is at another state after"
    for side, node in zip(SIDES, before, strict=True):
        if not pair.blocks[homes[side]].is_pair:
            return f"{moved} {_placed(node)}, which only {labels[side]} draws"
    sizes = [[list(one.size) for one in node.call.outputs if isinstance(one, View)] for node in before]
    return f"{moved} {_placed(before[1])}, which draws {sizes[1]} in {labels['b']}, {sizes[0]} in {labels['a']}"


def _outside(pair: TapePair, inputs: Sequence[FlowValue], begins: Begins) -> tuple[str, str | None, str | None]:
    """What is known of inputs of the step that differ."""
    said, source = [], None
    for value in inputs:
        link = pair.links.of["a"][value]
        tapes = (pair.flows["a"].tape, value.slot, link.mine), (pair.flows["b"].tape, link.value.slot, link.theirs)
        mine, theirs = (
            torch.empty(0, dtype=view.dtype).set_(
                tape.inputs[slot].clone().untyped_storage(), view.offset, view.size, view.stride
            )
            for tape, slot, view in tapes
        )
        reader = next((one for one in pair.flows["a"].nodes if any(use.value == value for use in one.reads)), None)
        read = f"; first read by {_placed(reader)}" if reader is not None else ""
        source = source or (None if reader is None else reader.call.line)
        said.append(f"{how_apart(mine, theirs)}{read}")
    is_given = all(value in [use.value for use in pair.flows["a"].given.values()] for value in inputs)
    what = "it" if is_given else "what it is made from"
    why = f"it came from {BEFORE if begins == 'step' else ''}outside of torch (a file, NumPy, Python)"
    return f"no op of the {begins} made {what} ({' and '.join(said)}): {why}", None, source
