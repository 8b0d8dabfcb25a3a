"""Choices that differ between the sides: those of ops on values near an edge, and those of the script.

Two modes that differ by rounding sometimes choose differently: an input of 1e-9 is positive in one and negative in the
other, or two candidates of a maximum are one ULP apart. The values after such a choice differ as much as the choices
do, which is no sign of a fault. The test executes side b with its own kernels and its own values, but with side a's
choices. If that alone brings the drift below the threshold, then everything smooth agrees within rounding, and the
drift depends on the choices. Only ops that return the same bits for both sides on the same inputs are forced. So a
kernel that chooses wrongly is not excused.

Where the script itself took another branch, the ops that it executes or omits there are one cause, reported with the
comparison that decided:

    the script took another branch at train.py:12: gt(0.0551199913, 0.0551) is True in cpu, gt(0.0550999902, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...tape.replaying.replay import is_same, set_apart
from ...tape.tape import View
from ..align.op_units import op_name
from ..align.storage_flow import SIDES, Side
from ..execute.hybrid import Hybrid, HybridExecution, TapePair
from ..execute.prepared_call import Kernels, PreparedCall
from .hybrid_tests import Drift, Scorer
from .site_causes import Cause

Choose = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
"""Takes side a's arguments and outputs and side b's arguments; returns the outputs for b's values by a's choice."""


@dataclass(frozen=True, slots=True)
class ChosenDrift:
    """A step with the reference's choices.

    drift: the drift that is left.
    flipped: the number of elements that chose differently.
    ops: the ops in which they did.
    """

    drift: Drift
    flipped: int
    ops: tuple[str, ...]


def _max_pool(a: Sequence[Any], a_out: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    # torch's indices count within the flattened plane [height, width] of the input
    indices = a_out[1]
    values = b[0].flatten(-2).gather(-1, indices.flatten(-2)).view(indices.shape)
    return [values, indices.clone()]


def _max_dim(a: Sequence[Any], a_out: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    dim, keep = int(b[1]), len(b) > 2 and bool(b[2])
    indices = a_out[1] if keep else a_out[1].unsqueeze(dim)
    values = b[0].gather(dim, indices)
    return [values if keep else values.squeeze(dim), a_out[1].clone()]


def _hardtanh(a: Sequence[Any], a_out: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    low, high = (b[1], b[2]) if len(b) > 2 else (-1.0, 1.0)
    return [torch.where((a[0] > low) & (a[0] < high), b[0], a_out[0])]


def _leaky_relu(a: Sequence[Any], a_out: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [torch.where(a[0] > 0, b[0], b[0] * (b[1] if len(b) > 1 else 0.01))]


def _as_in_reference(a: Sequence[Any], a_out: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [output.clone() if isinstance(output, torch.Tensor) else output for output in a_out]


CHOICES: Mapping[str, Choose] = {
    "relu": lambda a, a_out, b: [torch.where(a[0] > 0, b[0], torch.zeros_like(b[0]))],
    "threshold_backward": lambda a, a_out, b: [torch.where(a[1] > b[2], b[0], torch.zeros_like(b[0]))],
    "max_pool2d_with_indices": _max_pool,
    "max": _max_dim,
    "min": _max_dim,
    "hardtanh": _hardtanh,
    "hardtanh_backward": lambda a, a_out, b: [torch.where((a[1] > b[2]) & (a[1] < b[3]), b[0], torch.zeros_like(b[0]))],
    "leaky_relu": _leaky_relu,
    "leaky_relu_backward": lambda a, a_out, b: [torch.where(a[1] > 0, b[0], b[0] * b[2])],
    **dict.fromkeys(
        ["argmax", "argmin", "sgn", "sign", "gt", "ge", "lt", "le", "eq", "ne", "floor", "ceil", "round", "trunc"],
        _as_in_reference,
    ),
}
"""Ops that choose, by their names without the underscore of in-place ops."""


class _Remembering:
    """Side a's kernels, which also keep the arguments and outputs of choosing ops by block."""

    def __init__(self, kernels: Kernels, nodes: Mapping[int, int]) -> None:
        self.seen: dict[int, tuple[list[Any], list[Any]]] = {}
        self._kernels = kernels
        self._nodes = nodes

    def execute(self, call: PreparedCall) -> list[Any]:
        block = self._nodes.get(call.number)
        before = [_copied(value) for value in call.arguments] if block is not None else []
        outputs = self._kernels.execute(call)
        if block is not None:
            self.seen[block] = (before, [_copied(value) for value in outputs])
        return outputs


class _Forced:
    """Side b's kernels with side a's choices."""

    def __init__(
        self, kernels: Kernels, nodes: Mapping[int, int], seen: Mapping[int, tuple[list[Any], list[Any]]]
    ) -> None:
        self.flipped = 0
        self.ops: dict[str, None] = {}
        self._kernels = kernels
        self._nodes = nodes
        self._seen = seen

    def execute(self, call: PreparedCall) -> list[Any]:
        block, name = self._nodes.get(call.number), op_name(call.node)
        if block is None or block not in self._seen:
            return self._kernels.execute(call)
        before = [_copied(argument) for argument in call.arguments]
        outputs = self._kernels.execute(call)
        # The kernel runs first, so that an in-place op writes as usual; the choice uses the copy of its arguments.
        device = next(value.device for value in (*before, *outputs) if isinstance(value, torch.Tensor))
        reference_arguments, reference_outputs = (
            [_moved(value, device) for value in values] for values in self._seen[block]
        )
        chosen = CHOICES[name](reference_arguments, reference_outputs, before)
        for output, value in zip(outputs, chosen, strict=True):
            if isinstance(output, torch.Tensor) and not is_same(output, value.to(output.dtype)):
                self.flipped += int((output != value).sum())
                self.ops[name] = None
                output.copy_(value)
        return outputs


def with_choices_of_reference(pair: TapePair, scorer: Scorer, differing: set[int]) -> ChosenDrift | None:
    """Execute side b with side a's choices; None where the step has none, or they cannot be applied to side b.

    `differing` are the blocks that compute other bits on the same inputs: their choices are not replaced.
    """
    nodes: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    for number, block in enumerate(pair.blocks):
        if block.is_pair and number not in differing:
            left, right = pair.flows["a"].nodes[block.a[0]], pair.flows["b"].nodes[block.b[0]]
            name = op_name(left)
            # A maximum along a dimension returns indices; one over all elements does not, and is no choice.
            chooses = name in CHOICES and (name not in ("max", "min") or len(left.makes) == 2)
            if chooses and op_name(right) == name:
                nodes["a"][block.a[0]] = nodes["b"][block.b[0]] = number
    if not nodes["a"]:
        return None
    remembering = _Remembering(pair.kernels["a"], nodes["a"])
    forced = _Forced(pair.kernels["b"], nodes["b"], remembering.seen)
    kernels: dict[Side, Kernels] = {"a": remembering, "b": forced}
    try:
        with set_apart(pair.devices()):
            HybridExecution(pair, Hybrid("a"), kernels).run_all()
            values = HybridExecution(pair, Hybrid("b"), kernels).run_all().values()
    except Exception:  # noqa: BLE001, a choice of other shapes cannot be applied
        return None
    return ChosenDrift(scorer.drift(values), forced.flipped, tuple(forced.ops))


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


# Branches of the script: a number that it read from a tensor differs between the sides.

DIGITS = 9
"""The number of significant digits that distinguish any two float32 values."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A read in `block` that returned different numbers to the script; by side, the reading node and its number."""

    block: int
    reads: Mapping[Side, int]
    numbers: Mapping[Side, Any]


def with_decisions(pair: TapePair, causes: Sequence[Cause], labels: Mapping[Side, str]) -> list[Cause]:
    """Join the causes of kind `structure` that follow the same decision, and name the decision in their reasons."""
    decisions = []
    for number, block in enumerate(pair.blocks):
        reads = {side: block.of(side)[0] for side in SIDES} if block.is_pair else {}
        outputs = {side: pair.flows[side].nodes[node].call.outputs for side, node in reads.items()}
        figures = {side: [output for output in outputs.get(side, ()) if not isinstance(output, View)] for side in SIDES}
        if figures["a"] and figures["b"] and figures["a"] != figures["b"]:
            decisions.append(Decision(number, reads, {side: figures[side][0] for side in SIDES}))
    joined: dict[object, Cause] = {}
    for place, cause in enumerate(causes):
        decision = _before(pair, cause, decisions) if cause.kind == "structure" else None
        key: object = place if decision is None else decision.block
        if key in joined:
            joined[key] = replace(joined[key], sites=(*joined[key].sites, *cause.sites))
        elif decision is not None:
            line = next(
                (line for side in SIDES if (line := pair.flows[side].nodes[decision.reads[side]].call.line)), None
            )
            at_line = f" at {Path(line).name}" if line else ""
            expressions = [f"{_expression(pair, decision, side)} in {labels[side]}" for side in SIDES]
            in_words = f"the script took another branch{at_line}: {', '.join(expressions)}"
            joined[key] = replace(cause, reasons=(in_words, *cause.reasons))
        else:
            joined[key] = cause
    return list(joined.values())


def _before(pair: TapePair, cause: Cause, decisions: Sequence[Decision]) -> Decision | None:
    """Return the last decision before the cause.

    A decision about a truth value or a count always qualifies. A script may read any other number only to print it, so
    a decision about one qualifies only if the cause begins with the very next op.
    """
    nodes = {side: [node for block in cause.blocks for node in pair.blocks[block].of(side)] for side in SIDES}
    chosen = None
    for script_decision in decisions:
        before = all(script_decision.reads[side] < node for side in SIDES for node in nodes[side])
        just_before = any(script_decision.reads[side] + 1 in nodes[side] for side in SIDES)
        if (
            script_decision.block not in cause.blocks
            and before
            and (not isinstance(script_decision.numbers["a"], float) or just_before)
        ):
            chosen = script_decision
    return chosen


def _expression(pair: TapePair, decision: Decision, side: Side) -> str:
    """Return the expression that the script read and its value, such as `gt(0.0551199913, 0.0551) is True`."""
    flow, number = pair.flows[side], _text(decision.numbers[side])
    read = flow.nodes[decision.reads[side]]
    maker = flow.makers.get(read.reads[0].value) if read.reads else None
    if maker is None:
        return f"{read.call.name} is {number}"
    # Execute the maker's side up to the maker, for the tensors that it reads.
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
