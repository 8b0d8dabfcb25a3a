"""Calls of a tape executed in the process of their mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from ..tape.tape import View, leaves, views_in
from .storage_flow import Node


class Worker(Protocol):
    """The asking side of a held run."""

    def execute(
        self, step: int, position: int, memory: Mapping[int, tuple[int, torch.Tensor]]
    ) -> tuple[list[torch.Tensor | None], dict[int, torch.Tensor]]: ...

    def prepare(self, step: int, positions: Sequence[int]) -> None: ...

    def value(self, step: int, position: int) -> list[torch.Tensor] | None: ...


class WorkerCalls:
    """Executes calls of one step in a worker; `count` counts them."""

    def __init__(self, worker: Worker, step: int) -> None:
        self.count = 0
        self._worker = worker
        self._step = step

    def execute(self, node: Node, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """The flat outputs, plain values as they were recorded; what the call writes is written in place."""
        self.count += 1
        call = node.call
        given = [leaf for value in (*arguments, *keywords.values()) for leaf in leaves(value)]
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        memory, starts = _spans(list(views_in(call)), tensors)
        outputs, written = self._worker.execute(self._step, node.execution.position, memory)
        for use in node.writes:
            _put_back(
                use.view, written[use.value.slot], starts[use.value.slot], tensors, list(views_in(call))
            )
        return [
            answer if isinstance(recorded, View) else recorded
            for answer, recorded in zip(outputs, call.outputs, strict=True)
        ]

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Say which calls will be executed."""
        self._worker.prepare(self._step, [node.execution.position for node in nodes])

    def value(self, node: Node) -> list[torch.Tensor] | None:
        return self._worker.value(self._step, node.execution.position)


def _spans(
    views: Sequence[View], tensors: Sequence[torch.Tensor]
) -> tuple[dict[int, tuple[int, torch.Tensor]], dict[int, int]]:
    """By slot, the bytes that the views of a call lie in, and where they begin in their storage."""
    reach: dict[int, tuple[int, int, torch.Tensor]] = {}
    for view, tensor in zip(views, tensors, strict=True):
        size = view.dtype.itemsize
        start, end = view.offset * size, view.extent * size
        low, high, holder = reach.get(view.slot, (start, end, tensor))
        reach[view.slot] = (min(low, start), max(high, end), holder)
    memory = {}
    for slot, (low, high, tensor) in reach.items():
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        storage = tensor.untyped_storage()
        memory[slot] = (low, whole.set_(storage, low, (max(0, high - low),), (1,)))
    return memory, {slot: start for slot, (start, _) in memory.items()}


def _put_back(
    view: View, content: torch.Tensor, start: int, tensors: Sequence[torch.Tensor], views: Sequence[View]
) -> None:
    """Write a span that came back into the storage of the tensor that the call writes."""
    target = next(tensor for one, tensor in zip(views, tensors, strict=True) if one.slot == view.slot)
    whole = torch.empty(0, dtype=torch.uint8, device=target.device)
    whole.set_(target.untyped_storage(), start, (content.numel(),), (1,)).copy_(content)
