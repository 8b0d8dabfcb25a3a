"""What the steps that a compiling mode has taped really computed, for those who ask after the training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...tape.call_values import CallValues
from ...tape.replay import Execution, executed, set_apart
from ...tape.tape import Tape, leaves
from .node_kernels import NodeCompiler, NodeKernels, compile_node, is_generated


class RecordedKernels:
    """The kernels of one step. `notes` say which of its values are unknown, and why.

    `compile_` is the mode's compiler, which makes kernels of its own; None for one that executes graphs by eager ops.
    """

    def __init__(self, tape: Tape, values: CallValues, compile_: NodeCompiler | None) -> None:
        self.notes = tuple(dict.fromkeys(values.notes))
        self._generates = compile_ is not None
        self._values = values
        self._nodes = NodeKernels(tape, compile_ or compile_node)

    def digests(self) -> list[list[str | None]]:
        """For each call digests of its fresh outputs and of what it wrote; None for a value that is unknown."""
        return self._values.digests

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What a call of a compiled graph really gave, None where that is unknown or was not kept."""
        return self._values.value(position)

    def prepare(self, positions: Sequence[int]) -> None:
        """Compile the kernels of these calls together, so that `execute` has them."""
        if self._generates:
            self._nodes.prepare(positions)

    def execute(self, one: Execution, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call as this mode does: a node of a compiled graph compiled alone, anything else by eager ops.

        Gives flat outputs; arguments that the op writes are written in place. Grad mode, autocast and generators are as
        before afterwards. Raises what a compiler or an op raises.
        """
        draw = one.call.draw
        if one.position in self._values.swapped:
            with set_apart(()):
                outputs = self._values.swapped[one.position](*arguments, **keywords)
            return list(leaves(outputs))
        if self._generates and is_generated(one.call, one.operation):
            with torch.no_grad():
                return self._nodes.execute(one, arguments, keywords)
        devices = () if draw is None else (moved.device for moved in draw.states)
        with set_apart(devices), torch.set_grad_enabled(one.call.grad):
            return executed(one, arguments, keywords)


STEPS: dict[int, RecordedKernels] = {}
"""By step; filled when a taped step of a compiling mode has ended."""
