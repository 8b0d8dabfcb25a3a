"""The values that parameters and buffers start from."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..records.digest_record import RECORD_BYTES, pack, unreadable
from ..script.named_tensors import NamedTensor
from ..torch_private.dispatching import version_of, without_dispatch_modes, without_function_modes
from .batches import Read, has_value
from .digest import Digester

Write = Callable[..., None]
"""Writes an event into the journal: its kind, and its fields by name."""


@dataclass(frozen=True, slots=True)
class WaitingValues:
    """A tensor whose first value a lazy graph has yet to compute."""

    described: dict[str, Any]
    tensor: weakref.ref[torch.Tensor]
    version: int | None


class InitialTensors:
    """Writes an `initial` event for the tensors of each module that is adopted, before its first call.

    A value that a lazy graph has yet to compute is read after the backward, if nothing has changed it by
    then; otherwise its digest says that it could not be read.
    """

    def __init__(self, digester: Digester, read: Read, write: Write) -> None:
        self._digester = digester
        self._read = read
        self._write = write
        self.waiting: list[WaitingValues] = []

    def adopted(self, step: int, named: Sequence[NamedTensor]) -> None:
        """Record these tensors as they are now."""
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            there = [one for one in named if has_value(one.tensor)]
            known = {id(one) for one in there}
            self.waiting += [
                WaitingValues(one.describe(), weakref.ref(one.tensor), version_of(one.tensor))
                for one in named
                if id(one) not in known
            ]
            self._record(step, [one.describe() for one in there], [one.tensor for one in there])

    def settled(self, step: int) -> None:
        """Record what was waited for: the graph has been executed."""
        waiting, self.waiting = self.waiting, []
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            there: list[tuple[dict[str, Any], torch.Tensor]] = []
            lost: list[dict[str, Any]] = []
            for one in waiting:
                tensor = one.tensor()
                if tensor is None or version_of(tensor) != one.version or not has_value(tensor):
                    numel = torch.Size(one.described["shape"]).numel()
                    lost.append({**one.described, "digest": pack(unreadable(numel)).hex()})
                else:
                    there.append((one.described, tensor))
            self._record(step, [described for described, _ in there], [tensor for _, tensor in there], lost)

    def _record(
        self,
        step: int,
        described: Sequence[dict[str, Any]],
        tensors: Sequence[torch.Tensor],
        lost: Sequence[dict[str, Any]] = (),
    ) -> None:
        records = self._digester.digest(self._read(tensors))
        parts = (records[start : start + RECORD_BYTES] for start in range(0, len(records), RECORD_BYTES))
        written = [{**one, "digest": part.hex()} for one, part in zip(described, parts, strict=True)]
        if written or lost:
            self._write("initial", step=step, tensors=[*written, *lost])
