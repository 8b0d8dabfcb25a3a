"""Choices of ops that differ between the sides, on values near an edge.

Two modes that differ by rounding sometimes choose differently: an input of 1e-9 is positive in one and negative in the
other, or two candidates of a maximum are one ULP apart. The values after such a choice differ as much as the choices
do, which is not a sign of a fault. The test executes side b with its own kernels and its own values, but with side a's
choices. If that alone brings the drift below the threshold, then all smooth ops agree within rounding, and the drift
depends on the choices. Only ops whose versions on both sides return the same bits on the same inputs take side a's
choices. So a kernel that chooses wrongly is not excused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...tape.replaying.replay import is_same, set_apart
from ..align.op_units import op_name
from ..align.storage_flow import Side
from ..execute.hybrid import Hybrid, HybridExecution
from ..execute.prepared_call import Kernels, PreparedCall
from ..execute.tape_pair import TapePair
from .hybrid_tests import Drift, Scorer

Choose = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
"""Takes side a's arguments and outputs and side b's arguments; returns the outputs for b's values with a's choices."""


@dataclass(frozen=True, slots=True)
class ChosenDrift:
    """A step with the reference's choices.

    drift: the drift that is left.
    flipped: the number of elements that chose differently.
    ops: the ops in which elements chose differently.
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
    """Execute side b with side a's choices; None if the step has no choices, or if they cannot be applied to side b.

    `differing` are the blocks that compute different bits on the same inputs: their choices are not replaced.
    """
    nodes: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    for number, block in enumerate(pair.blocks):
        if block.is_pair and number not in differing:
            left, right = pair.flows["a"].nodes[block.a[0]], pair.flows["b"].nodes[block.b[0]]
            name = op_name(left)
            # A maximum along a dimension returns indices; one over all elements does not, and is not a choice.
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
    except Exception:  # noqa: BLE001, a choice of a different shape cannot be applied
        return None
    return ChosenDrift(scorer.drift(values), forced.flipped, tuple(forced.ops))


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _moved(value: Any, device: torch.device) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value
