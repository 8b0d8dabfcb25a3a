"""The ops that torch_xla decomposes above autograd, although torch has one kernel with one derivative for each.

In torch_xla 2.9 these are `native_layer_norm` and `native_group_norm`. They become `native_batch_norm`, `addcmul` and
reshapes, and their derivatives consist of the derivatives of these parts. The observer of a step sees only the parts.
This module finds the op that a part belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...torch_private.deferred.xla_tensors import XLA_AUTOGRAD_KEY, xla_composites
from ...torch_private.dispatching import next_sequence_number
from ...torch_private.operators import aten_overload
from ..followed_kernels import FollowedKernels, KernelCall

SUMS = ("aten::add", "aten::add_")
"""The ops by which autograd accumulates several gradients of one tensor.

Autograd calls them after the op that returned the last of these gradients, still under the autograd node of that op.
"""


@dataclass(frozen=True, slots=True, eq=False)
class ComposedOp:
    """One call of a decomposed op, or of its derivative.

    `number` is the number of the call. The autograd nodes of the call's parts are numbered from `begins`.
    """

    operation: Any
    number: int
    begins: int


class ComposedOps:
    """The observer of decomposed ops, from its creation until `close`. Do not call `close` from within an op."""

    def __init__(self) -> None:
        self._count = 0
        self._within: list[ComposedOp] = []
        self._derivatives: dict[int, ComposedOp] = {}
        self._kernels = FollowedKernels(
            xla_composites(), XLA_AUTOGRAD_KEY, self._entered, self._left, lambda composed, error: self._left(composed)
        )

    def close(self) -> None:
        self._kernels.close()

    def whole(self, operation: Any, sequence: int | None) -> ComposedOp | None:
        """Return the decomposed op that a called op is a part of, None if there is none.

        `sequence` is the number of the running autograd node, None outside of a backward.
        """
        if sequence is None or operation.name().partition(".")[0] in SUMS:
            return self._within[-1] if self._within else None
        return self._derivatives.get(sequence)

    def _entered(self, call: KernelCall) -> ComposedOp:
        self._within.append(self._composed_op(call.operation))
        return self._within[-1]

    def _left(self, composed: ComposedOp, outputs: Any = None) -> None:
        self._within.pop()
        derivative = aten_overload(f"{composed.operation.name().partition('.')[0]}_backward")
        numbers = range(composed.begins, next_sequence_number())
        if derivative is not None and numbers:
            self._derivatives.update(dict.fromkeys(numbers, self._composed_op(derivative)))

    def _composed_op(self, operation: Any) -> ComposedOp:
        self._count += 1
        return ComposedOp(operation, self._count, next_sequence_number())
