"""The calls of a tape's step, executed in the worker of their mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...tape.replaying.laid_out import LaidOut
from ...tape.tape import View, views_in
from ..align.storage_flow import FlowNode
from .prepared_call import PreparedCall
from .worker import Worker


class WorkerCalls:
    """The execution of one step's calls in a worker; `count` is the number of executed calls."""

    def __init__(self, worker: Worker, step: int) -> None:
        self.count = 0
        self._worker = worker
        self._step = step

    def execute(self, call: PreparedCall, settings: Mapping[str, Any] | None = None) -> list[Any]:
        """Execute a call, update the arguments that it writes, and return its flat outputs.

        Outputs that are not tensors have their recorded values. `settings` are those of torch's settings that differ
        from the step's.
        """
        self.count += 1
        position = call.node.execution.position
        if call.is_laid_out_as_recorded:
            outputs = self._execute_on_spans(call, settings)
        else:
            outputs, contents = self._worker.relaid(self._step, position, call.tensors, settings)
            call.write(contents)
        recorded_outputs = call.node.call.outputs
        return [
            output if isinstance(recorded, View) else recorded
            for output, recorded in zip(outputs, recorded_outputs, strict=True)
        ]

    def _execute_on_spans(self, call: PreparedCall, settings: Mapping[str, Any] | None) -> list[torch.Tensor | None]:
        """Execute a call on the bytes of its storages.

        For each slot, the span of bytes that contains all views of it is sent. The views may overlap, and the worker
        must lay them out in the same way.
        """
        spans: dict[int, tuple[int, int, torch.Tensor]] = {}
        for view, tensor in zip(views_in(call.node.call), call.tensors, strict=True):
            start, end = view.offset * view.dtype.itemsize, view.extent * view.dtype.itemsize
            low, high, holder = spans.get(view.slot, (start, end, tensor))
            spans[view.slot] = (min(low, start), max(high, end), holder)
        memory = {
            slot: (low, _bytes_of(tensor, low, max(0, high - low))) for slot, (low, high, tensor) in spans.items()
        }
        outputs, written = self._worker.execute(self._step, call.node.execution.position, memory, settings)
        for use in call.node.writes:
            content = written[use.value.slot]
            low, _, target = spans[use.value.slot]
            _bytes_of(target, low, content.numel()).copy_(content)  # enlarges the storage if the op did
        return outputs

    def called(self, node: FlowNode) -> list[LaidOut] | None:
        """Return the layouts of the tensors with which the mode's own code called the op; None if they are unknown."""
        return self._worker.called(self._step, node.execution.position)

    def prepare(self, nodes: Sequence[FlowNode]) -> None:
        """Announce the calls that will be executed."""
        self._worker.prepare(self._step, [node.execution.position for node in nodes])

    def value(self, node: FlowNode) -> list[torch.Tensor] | None:
        """Return the results of a call's real execution; None if they were not kept."""
        return self._worker.value(self._step, node.execution.position)


def _bytes_of(tensor: torch.Tensor, start: int, count: int) -> torch.Tensor:
    """Return `count` bytes of a tensor's storage, from the byte `start` on."""
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return whole.set_(tensor.untyped_storage(), start, (count,), (1,))
