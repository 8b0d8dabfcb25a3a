"""Descriptions of the causes of a difference between batches.

triu (train.py:32) receives diagonal=0 in bad, 1 in cpu
only bad executes _to_copy with dtype=int8 (train.py:31)
randint (train.py:31) draws different numbers: the generator is in a different state after rand (train.py:30), which ...
no op of the step computed it (float32 [8, 4], 3 of 32 elements differ, by up to 0.5; first read by addmm (...)): it ...
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from ...records.results.culprit import SETUP
from ...tape.tape import GeneratorState, View, leaves
from ...torch_private.operators import argument_names
from ..align.argument_differences import WIRING, named_arguments, plain_text
from ..align.op_units import op_name
from ..align.storage_flow import SIDES, FlowNode, FlowValue, Side
from ..execute.tape_pair import TapePair
from .examination import Examined, flagged
from .site_causes import Cause

Labels = Mapping[Side, str]

Begins = Literal["step", "script"]
"""The point at which the tapes begin: with a step, or with the script, to record everything before its first step."""

MOST_LISTED = 4

BEFORE = "existed before the step or "


def how_apart(reference_value: torch.Tensor, value: torch.Tensor) -> str:
    """Describe the difference between two tensors: `float32 [8, 4], 3 of 32 elements differ, by up to 0.5`."""
    description = f"{plain_text(reference_value.dtype)} {list(reference_value.shape)}"
    if reference_value.shape != value.shape or reference_value.dtype != value.dtype:
        return f"{description} against {plain_text(value.dtype)} {list(value.shape)}"
    differ = ~torch.isclose(reference_value, value, rtol=0.0, atol=0.0, equal_nan=True)
    count = f"{int(differ.sum())} of {reference_value.numel()} elements differ"
    if reference_value.dtype == torch.bool:
        return f"{description}, {count}"
    distances = (reference_value[differ].to(torch.complex128) - value[differ].to(torch.complex128)).abs()
    return f"{description}, {count}, by up to {float(distances.max()) if distances.numel() else 0.0:.3g}"


def what_it_does(
    pair: TapePair, examined: Mapping[int, Examined], part: Cause, labels: Labels, begins: Begins
) -> tuple[str, str | None, str | None]:
    """Return the effect of a part of a cause in words, with its op and its line."""
    if not part.sites:
        return _outside(pair, part.inputs, begins)
    lead = min(flagged(examined, part.blocks) or part.blocks)
    nodes = {side: pair.nodes(lead, side) for side in SIDES}
    first = (nodes["b"] or nodes["a"])[0]
    placed_op, op = _placed(first), f"{first.call.op.split('.')[0]}.{op_name(first)}"
    if part.kind == SETUP:
        text = f"{placed_op} draws different numbers: {_draw_before(pair, first, labels, begins)}"
    elif pair.blocks[lead].is_pair and part.kind == "arguments":
        left, right = nodes["a"][0], nodes["b"][0]
        text = f"{placed_op} receives {_other_arguments(left, right, labels) or ', '.join(part.reasons)}"
    elif not nodes["a"] or not nodes["b"]:
        side: Side = "b" if nodes["b"] else "a"
        text = f"only {labels[side]} executes {_listed(nodes[side])}"
    elif part.kind == "kernel" and [node.call.op for node in nodes["a"]] == [node.call.op for node in nodes["b"]]:
        text = f"{placed_op} returns different values in {labels['b']} on equal inputs"
    elif WIRING in part.reasons:
        text = f"{placed_op} reads a different tensor in {labels['b']} than in {labels['a']}"
    else:
        text = f"{labels['b']} executes {_listed(nodes['b'])} where {labels['a']} executes {_listed(nodes['a'])}"
    return text, op, first.call.line


def _placed(node: FlowNode, suffix: str = "") -> str:
    line = f" ({Path(node.call.line).name})" if node.call.line else ""
    return f"{op_name(node)}{suffix}{line}"


def _arguments(node: FlowNode) -> dict[str, Any]:
    """Return the arguments of a call that are not tensors, by name, defaults included."""
    return {
        name: value
        for name, value in named_arguments(node).items()
        if not any(isinstance(leaf, (View, GeneratorState)) for leaf in leaves(value))
    }


def _other_arguments(left: FlowNode, right: FlowNode, labels: Labels) -> str:
    """Return the differing arguments that are not tensors: `diagonal=0 in bad, 1 in cpu`."""
    reference_values, values = _arguments(left), _arguments(right)
    differences = [
        f"{name}={plain_text(values[name])} in {labels['b']}, {plain_text(reference_values[name])} in {labels['a']}"
        for name in reference_values
        if name in values and reference_values[name] != values[name]
    ]
    if left.call.op != right.call.op:  # overloads of one op may have different arguments
        sides: tuple[tuple[Side, dict[str, Any], dict[str, Any]], ...] = (
            ("b", values, reference_values),
            ("a", reference_values, values),
        )
        for side, arguments, lacking in sides:
            differences += [
                f"{name}={plain_text(arguments[name])} only in {labels[side]}"
                for name in arguments
                if name not in lacking
            ]
    return " and ".join(differences)


def _listed(nodes: Sequence[FlowNode]) -> str:
    """Return the list of the executed calls in words, each once."""
    texts = list(dict.fromkeys(_with_arguments(node) for node in nodes))
    more = f" and {len(texts) - MOST_LISTED} more" if len(texts) > MOST_LISTED else ""
    return ", ".join(texts[:MOST_LISTED]) + more


def _with_arguments(node: FlowNode) -> str:
    """Return a call with its arguments that are not the defaults: `mul with other=1.25 (train.py:31)`."""
    defaults = dict(argument_names(node.execution.operation))
    texts = [f"{name}={plain_text(value)}" for name, value in _arguments(node).items() if value != defaults[name]]
    quiet = {"layout=strided", "device=cpu", "pin_memory=False"}
    texts = [text for text in texts if text not in quiet]
    return _placed(node, f" with {', '.join(texts)}" if texts else "")


def _draw_before(pair: TapePair, node: FlowNode, labels: Labels, begins: Begins) -> str:
    """Return the reason why a draw yields different numbers.

    The reason is the last draw from torch's generator that both sides began in the same state: this draw leaves the
    generator in different states.
    """
    if node.call.draw is None or not node.call.draw.states:
        return "a generator that the script created is in a different state"
    drawing: dict[Side, list[tuple[int, FlowNode, torch.Tensor]]] = {
        side: [
            (pair.home[side][number], draw_node, draw_node.call.draw.states[0].state)
            for number, draw_node in enumerate(pair.flows[side].nodes)
            if draw_node.call.draw is not None and draw_node.call.draw.states
        ]
        for side in SIDES
    }
    alike = list(
        itertools.takewhile(lambda draws: torch.equal(draws[0][2], draws[1][2]), zip(*drawing.values(), strict=False))
    )
    if not alike:
        return f"the generator is in a different state where the {begins} begins to draw"
    before = dict(zip(SIDES, alike[-1], strict=True))
    moved = "the generator is in a different state after"
    for side in reversed(SIDES):
        home, last_node, _ = before[side]
        if not pair.blocks[home].is_pair:
            return f"{moved} {_placed(last_node)}, which only {labels[side]} executes"
    sizes = {
        side: [list(view.size) for view in drawn_node.call.outputs if isinstance(view, View)]
        for side, (_, drawn_node, _) in before.items()
    }
    last = _placed(before["b"][1])
    if sizes["a"] != sizes["b"]:
        shapes = f"{sizes['b']} in {labels['b']}, {sizes['a']} in {labels['a']}"
        return f"{moved} {last}, which draws tensors of different sizes: {shapes}"
    return f"the generator was set to a different state after {last}"


def _outside(pair: TapePair, inputs: Sequence[FlowValue], begins: Begins) -> tuple[str, str | None, str | None]:
    """Describe inputs of the step that differ; return the text, an op and a line."""
    descriptions, source = [], None
    for value in inputs:
        reader = first_reader(pair, value)
        read = f"; first read by {_placed(reader)}" if reader is not None else ""
        source = source or (None if reader is None else reader.call.line)
        descriptions.append(f"{how_apart(*_both(pair, value))}{read}")
    is_argument = all(value in [use.value for use in pair.flows["a"].batch.values()] for value in inputs)
    subject = "it" if is_argument else "the values from which it is computed"
    before = f"{'it' if is_argument else 'they'} {BEFORE if begins == 'step' else ''}"
    why = f"{before}came from outside of torch (a file, NumPy, Python)"
    return f"no op of the {begins} computed {subject} ({' and '.join(descriptions)}): {why}", None, source


def _both(pair: TapePair, value: FlowValue) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both sides' contents of an input of the step, which is identified by side a's value."""
    link = pair.links.of["a"][value]
    tapes = (pair.flows["a"].tape, value.slot, link.own_view), (pair.flows["b"].tape, link.value.slot, link.far_view)
    left, right = (
        torch.empty(0, dtype=view.dtype).set_(
            tape.inputs[slot].clone().untyped_storage(), view.offset, view.size, view.stride
        )
        for tape, slot, view in tapes
    )
    return left, right


# Inputs of a step other than the batch, such as a target that the script computes before it calls its model

DIGITS = (6, 9, 17)
"""Numbers of significant digits: 6 are readable, 9 distinguish any two float32, and 17 any two float64."""


def first_reader(pair: TapePair, value: FlowValue) -> FlowNode | None:
    """Return the first call of side a that reads this value."""
    return next((node for node in pair.flows["a"].nodes if any(use.value == value for use in node.reads)), None)


def inputs_in_words(pair: TapePair, inputs: Sequence[FlowValue], labels: Labels) -> tuple[str, ...]:
    """Describe the inputs of the step that differ, by the first use of each and its first element that differs:

    argument 2 (target) of aten.binary_cross_entropy (gan.py:141), float32 [64, 1], 64 of 64 elements differ, by up to
    0.1: [0, 0] is 1 in cpu, 0.9 in bad
    """
    lines = []
    for value in inputs[:MOST_LISTED]:
        left, right = _both(pair, value)
        reader = first_reader(pair, value)
        reading = "a value that no op reads" if reader is None else _as_argument(reader, value)
        lines.append(f"{reading}, {how_apart(left, right)}{_first_apart(left, right, labels)}")
    more = len(inputs) - len(lines)
    return (*lines, f"and {more} more input{'s' if more > 1 else ''}") if more > 0 else tuple(lines)


def _as_argument(node: FlowNode, value: FlowValue) -> str:
    """Name a value by its place in a call: `argument 2 (target) of aten.binary_cross_entropy (gan.py:141)`."""
    names = [name for name, _ in argument_names(node.execution.operation)]
    uses = iter(node.reads)
    items = [*enumerate(node.call.arguments), *((names.index(name), item) for name, item in node.call.keywords.items())]
    # the reads of a call are the views among its arguments, in their order
    places = [at for at, item in items for leaf in leaves(item) if isinstance(leaf, View) and next(uses).value == value]
    position = f"argument {places[0] + 1} ({names[places[0]]})"
    return f"{position} of {node.call.op.partition('.')[0]}.{_placed(node)}"


def _first_apart(left: torch.Tensor, right: torch.Tensor, labels: Labels) -> str:
    if left.shape != right.shape or left.dtype != right.dtype:
        return ""
    differ = ~torch.isclose(left, right, rtol=0.0, atol=0.0, equal_nan=True)
    if not bool(differ.any()):
        return ""
    place = differ.nonzero()[0].tolist()
    left_number, right_number = left[tuple(place)].item(), right[tuple(place)].item()
    for digits in DIGITS if left.dtype.is_floating_point else ():
        texts = f"{left_number:.{digits}g}", f"{right_number:.{digits}g}"
        if texts[0] != texts[1]:
            break
    else:
        texts = str(left_number), str(right_number)
    return f": {place or 'it'} is {texts[0]} in {labels['a']}, {texts[1]} in {labels['b']}"
