"""A tape replayed here with every call executed elsewhere, on the bytes that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.replaying.replay import AsRecorded, Computation, results
from numdrift.harness.tape.serving.step_kernels import spans_of
from numdrift.harness.tape.storages import bytes_of_storage
from numdrift.harness.tape.tape import leaves, views_in

Memory = dict[int, tuple[int, torch.Tensor]]
Executed = tuple[list[torch.Tensor | None], dict[int, torch.Tensor]]


class Elsewhere(AsRecorded):
    """Has `execute(position, memory)` execute each call; `digests` are those of what it gave, `widen` bytes are sent
    around what a call takes."""

    def __init__(self, calls: int, execute: Callable[[int, Memory], Executed], widen: int = 0) -> None:
        self.digests: list[list[str | None]] = [[] for _ in range(calls)]
        self.ops: list[str] = []
        self._execute = execute
        self._widen = widen

    def execute(self, one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        storages = storages_of(one, arguments, keywords)
        memory = self._memory(one, storages)
        outputs, written = self._execute(one.position, memory)
        assert set(written) == {view.slot for view in one.written_views()}
        for slot, content in written.items():
            put_back(storages[slot], memory[slot][0], content)
        self.ops.append(one.call.op)
        self.digests[one.position] = [digest_of(value) for value in results(one, outputs, arguments, keywords)]
        return list(outputs)

    def _memory(self, one: Computation, storages: Mapping[int, torch.Tensor]) -> Memory:
        memory: Memory = {}
        for slot, (first, last) in spans_of(one.call).items():
            whole = bytes_of_storage(storages[slot])
            first, last = max(0, first - self._widen), min(whole.numel(), last + self._widen)
            memory[slot] = first, whole[first:last].clone()
        return memory


def storages_of(one: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> dict[int, torch.Tensor]:
    """By slot a tensor that lies in its storage."""
    given = [leaf for value in (*arguments, *keywords.values()) for leaf in leaves(value)]
    tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
    return {view.slot: tensor for view, tensor in zip(views_in(one.call), tensors, strict=True)}


def put_back(tensor: torch.Tensor, start: int, content: torch.Tensor) -> None:
    storage = tensor.untyped_storage()
    if storage.nbytes() < start + content.numel():
        storage.resize_(start + content.numel())
    bytes_of_storage(tensor)[start : start + content.numel()].copy_(content)
