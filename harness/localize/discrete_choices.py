"""Discrete choices on the edge: is a drift only that some ReLU or maximum, next to its kink, fell the other
way?

Two modes that differ by rounding now and then choose differently: an input of 1e-9 is positive here and
negative there, two candidates of a maximum are one ULP apart. What follows is as far apart as the choices
are, and no sign of a fault. The test: side b as it is, with its own kernels and its own values, but with side
a's choices. If only that brings the drift below the threshold, then everything smooth agrees within rounding,
and the choices hung on it. Only ops that give both sides the same bits on the same inputs are forced, so a
kernel that chooses wrongly is not excused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..tape.replay import is_same, set_apart
from .alignment import op_name
from .hybrid import Kernels, Mixture, MixtureExecution, TapePair
from .hybrid_scores import Drift, Scorer
from .storage_flow import FlowNode, Side

Choose = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
"""From side a's arguments and outputs and side b's arguments: what the op gives of b's values by a's
choice."""


@dataclass(frozen=True, slots=True)
class ChosenDrift:
    """A step with the reference's choices: its `drift`, how many elements chose otherwise, and in which
    ops."""

    drift: Drift
    flipped: int
    ops: tuple[str, ...]


def _relu(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [torch.where(a[0] > 0, b[0], torch.zeros_like(b[0]))]


def _threshold_backward(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [torch.where(a[1] > b[2], b[0], torch.zeros_like(b[0]))]


def _max_pool(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    indices = given[1]
    planes = b[0].flatten(-2)
    values = planes.gather(-1, indices.flatten(-2)).view(indices.shape)
    return [values, indices.clone()]


def _max_dim(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    dim, keep = int(b[1]), len(b) > 2 and bool(b[2])
    indices = given[1] if keep else given[1].unsqueeze(dim)
    values = b[0].gather(dim, indices)
    return [values if keep else values.squeeze(dim), given[1].clone()]


def _hardtanh(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    low, high = (b[1], b[2]) if len(b) > 2 else (-1.0, 1.0)
    inside = (a[0] > low) & (a[0] < high)
    return [torch.where(inside, b[0], given[0])]


def _hardtanh_backward(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    inside = (a[1] > b[2]) & (a[1] < b[3])
    return [torch.where(inside, b[0], torch.zeros_like(b[0]))]


def _leaky_relu(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    slope = b[1] if len(b) > 1 else 0.01
    return [torch.where(a[0] > 0, b[0], b[0] * slope)]


def _leaky_relu_backward(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [torch.where(a[1] > 0, b[0], b[0] * b[2])]


def _as_given(a: Sequence[Any], given: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    return [one.clone() if isinstance(one, torch.Tensor) else one for one in given]


CHOICES: Mapping[str, Choose] = {
    "relu": _relu,
    "threshold_backward": _threshold_backward,
    "max_pool2d_with_indices": _max_pool,
    "max": _max_dim,
    "min": _max_dim,
    "hardtanh": _hardtanh,
    "hardtanh_backward": _hardtanh_backward,
    "leaky_relu": _leaky_relu,
    "leaky_relu_backward": _leaky_relu_backward,
    **dict.fromkeys(
        (
            "argmax",
            "argmin",
            "sgn",
            "sign",
            "gt",
            "ge",
            "lt",
            "le",
            "eq",
            "ne",
            "floor",
            "ceil",
            "round",
            "trunc",
        ),
        _as_given,
    ),
}
"""Ops that choose, by their names without the underscore of those in place."""


class _Remembering:
    """Side a's kernels, with what chosen ops took and gave kept by block."""

    def __init__(self, kernels: Kernels, nodes: Mapping[int, int]) -> None:
        self.seen: dict[int, tuple[list[Any], list[Any]]] = {}
        self._kernels = kernels
        self._nodes = nodes

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        block = self._nodes.get(number)
        before = [_copied(one) for one in arguments] if block is not None else []
        outputs = self._kernels.execute(number, node, arguments, keywords)
        if block is not None:
            self.seen[block] = (before, [_copied(one) for one in outputs])
        return outputs


class _Forced:
    """Side b's kernels, with side a's choices."""

    def __init__(
        self, kernels: Kernels, nodes: Mapping[int, int], seen: Mapping[int, tuple[list[Any], list[Any]]]
    ) -> None:
        self.flipped = 0
        self.ops: dict[str, None] = {}
        self._kernels = kernels
        self._nodes = nodes
        self._seen = seen

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        block = self._nodes.get(number)
        if block is None or block not in self._seen:
            return self._kernels.execute(number, node, arguments, keywords)
        before = [_copied(one) for one in arguments]
        outputs = self._kernels.execute(number, node, arguments, keywords)
        theirs, given = self._seen[block]
        chosen = CHOICES[op_name(node)](theirs, given, before)
        for output, value in zip(outputs, chosen, strict=True):
            if isinstance(output, torch.Tensor) and not is_same(output, value.to(output.dtype)):
                self.flipped += int((output != value).sum())
                self.ops[op_name(node)] = None
                output.copy_(value)
        return outputs


def with_choices_of_reference(pair: TapePair, scorer: Scorer, differing: set[int]) -> ChosenDrift | None:
    """Execute side b with side a's choices; None where the step has none, or they cannot be taken over.

    `differing` are blocks that give other bits on the same inputs: they are left as they are.
    """
    nodes: dict[str, dict[int, int]] = {"a": {}, "b": {}}
    for number, block in enumerate(pair.blocks):
        if block.is_pair and number not in differing:
            left, right = pair.flows["a"].nodes[block.a[0]], pair.flows["b"].nodes[block.b[0]]
            # Whether it is a form of the op that chooses: a maximum along a dimension gives indices, one of
            # all elements does not
            if (
                op_name(left) in CHOICES
                and op_name(right) == op_name(left)
                and (op_name(left) not in ("max", "min") or len(left.makes) == 2)
            ):
                nodes["a"][block.a[0]] = nodes["b"][block.b[0]] = number
    if not nodes["a"]:
        return None
    remembering = _Remembering(pair.kernels["a"], nodes["a"])
    forced = _Forced(pair.kernels["b"], nodes["b"], remembering.seen)
    kernels: dict[Side, Kernels] = {"a": remembering, "b": forced}
    try:
        with set_apart(pair.devices()):
            MixtureExecution(pair, Mixture("a"), kernels).run_all()
            values = MixtureExecution(pair, Mixture("b"), kernels).run_all().values()
    except Exception:  # noqa: BLE001, a choice of other shapes cannot be taken over
        return None
    return ChosenDrift(scorer.drift(values), forced.flipped, tuple(forced.ops))


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
