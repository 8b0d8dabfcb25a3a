"""What makes a batch another one, in words.

triu (train.py:32) is given diagonal=0 in bad, 1 in cpu
only bad executes _to_copy with dtype=int8 (train.py:31)
randint (train.py:31) draws other numbers: the generator is at another state after rand (train.py:30), which ...
no op of the step made it (float32 [8, 4], 3 of 32 elements differ, by up to 0.5; first read by addmm (...)): it ...
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ..records.culprit import SETUP
from ..tape.tape import GeneratorState, View, leaves
from ..torch_private.operators import argument_names
from .argument_differences import plain_text
from .examination import Examined
from .hybrid import TapePair
from .op_units import op_name
from .storage_flow import SIDES, FlowNode, FlowValue, Side
from .suspects import WIRING
from .swap_sites import Cause

Labels = Mapping[Side, str]

Begins = Literal["step", "script"]
"""Of what the tapes are: of a step, or of all that a script does before its first one."""

MOST_LISTED = 4

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
        text = f"{what} draws other numbers: {_draw_before(pair, first, labels, begins)}"
    elif pair.blocks[lead].is_pair and part.kind == "arguments":
        left, right = nodes["a"][0], nodes["b"][0]
        text = f"{what} is given {_told_otherwise(left, right, labels) or ', '.join(part.reasons)}"
    elif not nodes["a"] or not nodes["b"]:
        side: Side = "b" if nodes["b"] else "a"
        text = f"only {labels[side]} executes {_listed(nodes[side])}"
    elif part.kind == "kernel" and [one.call.op for one in nodes["a"]] == [one.call.op for one in nodes["b"]]:
        text = f"{what} gives other values in {labels['b']} on equal inputs"
    elif WIRING in part.reasons:
        text = f"{what} reads another tensor in {labels['b']} than in {labels['a']}"
    else:
        text = f"{labels['b']} executes {_listed(nodes['b'])} where {labels['a']} executes {_listed(nodes['a'])}"
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


def _listed(nodes: Sequence[FlowNode]) -> str:
    """What is executed, each once."""
    told = list(dict.fromkeys(_with_arguments(one) for one in nodes))
    more = f" and {len(told) - MOST_LISTED} more" if len(told) > MOST_LISTED else ""
    return ", ".join(told[:MOST_LISTED]) + more


def _with_arguments(node: FlowNode) -> str:
    """`mul with other=1.25 (train.py:31)`: what is not the default."""
    defaults = dict(argument_names(node.execution.operation))
    told = [f"{name}={plain_text(value)}" for name, value in _arguments(node).items() if value != defaults[name]]
    quiet = {"layout=strided", "device=cpu", "pin_memory=False"}
    told = [one for one in told if one not in quiet]
    return _placed(node, f" with {', '.join(told)}" if told else "")


def _draw_before(pair: TapePair, node: FlowNode, labels: Labels, begins: Begins) -> str:
    """Why a draw gives other numbers: the last draw from torch's generator that both sides began in one state is where
    the two went apart."""
    if node.call.draw is None or not node.call.draw.states:
        return "a generator that the script made is at another state"
    drawing: dict[Side, list[tuple[int, FlowNode, torch.Tensor]]] = {
        side: [
            (pair.home[side][number], one, one.call.draw.states[0].state)
            for number, one in enumerate(pair.flows[side].nodes)
            if one.call.draw is not None and one.call.draw.states
        ]
        for side in SIDES
    }
    alike = list(
        itertools.takewhile(lambda two: torch.equal(two[0][2], two[1][2]), zip(*drawing.values(), strict=False))
    )
    if not alike:
        return f"the generator is at another state where the {begins} begins to draw"
    before = dict(zip(SIDES, alike[-1], strict=True))
    moved = "the generator is at another state after"
    for side in reversed(SIDES):
        home, one, _ = before[side]
        if not pair.blocks[home].is_pair:
            return f"{moved} {_placed(one)}, which only {labels[side]} draws"
    sizes = {
        side: [list(v.size) for v in one.call.outputs if isinstance(v, View)] for side, (_, one, _) in before.items()
    }
    last = _placed(before["b"][1])
    if sizes["a"] != sizes["b"]:
        return f"{moved} {last}, which draws {sizes['b']} in {labels['b']}, {sizes['a']} in {labels['a']}"
    return f"the generator was set to another state after {last}"


def _outside(pair: TapePair, inputs: Sequence[FlowValue], begins: Begins) -> tuple[str, str | None, str | None]:
    """What is known of inputs of the step that differ."""
    said, source = [], None
    for value in inputs:
        reader = first_reader(pair, value)
        read = f"; first read by {_placed(reader)}" if reader is not None else ""
        source = source or (None if reader is None else reader.call.line)
        said.append(f"{how_apart(*_both(pair, value))}{read}")
    is_given = all(value in [use.value for use in pair.flows["a"].given.values()] for value in inputs)
    what = "it" if is_given else "what it is made from"
    why = f"it came from {BEFORE if begins == 'step' else ''}outside of torch (a file, NumPy, Python)"
    return f"no op of the {begins} made {what} ({' and '.join(said)}): {why}", None, source


def _both(pair: TapePair, value: FlowValue) -> tuple[torch.Tensor, torch.Tensor]:
    """An input of the step, by side a's value, as both sides have it."""
    link = pair.links.of["a"][value]
    tapes = (pair.flows["a"].tape, value.slot, link.mine), (pair.flows["b"].tape, link.value.slot, link.theirs)
    mine, theirs = (
        torch.empty(0, dtype=view.dtype).set_(
            tape.inputs[slot].clone().untyped_storage(), view.offset, view.size, view.stride
        )
        for tape, slot, view in tapes
    )
    return mine, theirs


# What a step starts from, where it is not the batch: a target that the script makes before it calls its model.

DIGITS = (6, 9, 17)
"""Significant digits: those that people read, and that tell any two float32 and any two float64 apart."""


def first_reader(pair: TapePair, value: FlowValue) -> FlowNode | None:
    """The first call of side a that reads this value."""
    return next((one for one in pair.flows["a"].nodes if any(use.value == value for use in one.reads)), None)


def inputs_in_words(pair: TapePair, inputs: Sequence[FlowValue], labels: Labels) -> tuple[str, ...]:
    """Which inputs of the step differ: where each is used first, and its first value that is another one:

    argument 2 (target) of aten.binary_cross_entropy (gan.py:141), float32 [64, 1], 64 of 64 elements differ, by up to
    0.1: [0, 0] is 1 in cpu, 0.9 in bad
    """
    said = []
    for value in inputs[:MOST_LISTED]:
        mine, theirs = _both(pair, value)
        reader = first_reader(pair, value)
        used = "something that no op reads" if reader is None else _as_argument(reader, value)
        said.append(f"{used}, {how_apart(mine, theirs)}{_first_apart(mine, theirs, labels)}")
    more = len(inputs) - len(said)
    return (*said, f"and {more} more that it starts from") if more > 0 else tuple(said)


def _as_argument(node: FlowNode, value: FlowValue) -> str:
    """`argument 2 (target) of aten.binary_cross_entropy (gan.py:141)`."""
    names = [name for name, _ in argument_names(node.execution.operation)]
    uses = iter(node.reads)
    given = [*enumerate(node.call.arguments), *((names.index(name), one) for name, one in node.call.keywords.items())]
    # the reads of a call are the views among its arguments, in their order
    places = [at for at, one in given for leaf in leaves(one) if isinstance(leaf, View) and next(uses).value == value]
    what = f"argument {places[0] + 1} ({names[places[0]]})"
    return f"{what} of {node.call.op.partition('.')[0]}.{_placed(node)}"


def _first_apart(mine: torch.Tensor, theirs: torch.Tensor, labels: Labels) -> str:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return ""
    differ = ~torch.isclose(mine, theirs, rtol=0.0, atol=0.0, equal_nan=True)
    if not bool(differ.any()):
        return ""
    place = differ.nonzero()[0].tolist()
    ours, other = mine[tuple(place)].item(), theirs[tuple(place)].item()
    for digits in DIGITS if mine.dtype.is_floating_point else ():
        told = f"{ours:.{digits}g}", f"{other:.{digits}g}"
        if told[0] != told[1]:
            break
    else:
        told = str(ours), str(other)
    return f": {place or 'it'} is {told[0]} in {labels['a']}, {told[1]} in {labels['b']}"
