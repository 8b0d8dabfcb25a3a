"""The memory that one call works on, cut out of its storages: what its views span, and nothing around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .replay import given
from .tape import Call, Slot, View, views_in

Bytes = Mapping[int, tuple[int, torch.Tensor]]
"""By slot: where a span begins in its storage, and its content as bytes."""

ALIGNMENT = 64
"""Bytes to a multiple of which torch aligns memory; a span lies at the same place modulo this as in its storage, for
kernels may add up in another order elsewhere."""


class CallMemory:
    """Storages for one call, made from spans of the recorded ones; what the call writes may be written into these.

    Raises ValueError unless every view that the call takes lies within the span of its slot: what reads beyond its
    memory ends the process.
    """

    def __init__(self, call: Call, slots: Sequence[Slot], content: Bytes) -> None:
        self._call = call
        self._starts = {slot: start for slot, (start, _) in content.items()}
        spans = spans_of(call)
        if spans.keys() != content.keys():
            raise ValueError(f"{call.op} takes the slots {sorted(spans)}, sent are {sorted(content)}")
        for slot, (first, last) in spans.items():
            start, data = content[slot]
            if first < last and not start <= first <= last <= start + data.numel():
                raise ValueError(
                    f"{call.op} takes the bytes {first} to {last} of slot {slot}, "
                    f"sent are {start} to {start + data.numel()}"
                )
        self._storages = {
            slot: _storage(start, data, slots[slot].device) for slot, (start, data) in content.items()
        }

    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the call takes, on this memory."""
        return given(self._call, self._tensor)

    def content(self, slot: int) -> torch.Tensor:
        """The span of a slot as it is now; it ends where the storage ends, should an op have made it larger."""
        storage = self._storages[slot]
        lead = self._starts[slot] % ALIGNMENT
        empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
        return empty.set_(storage, lead, (storage.nbytes() - lead,), (1,))

    def _tensor(self, view: View) -> torch.Tensor:
        start, storage = self._starts[view.slot], self._storages[view.slot]
        offset = view.offset - (start - start % ALIGNMENT) // view.dtype.itemsize
        empty = torch.empty(0, dtype=view.dtype, device=storage.device)
        return empty.set_(storage, max(0, offset), view.size, view.stride)


def spans_of(call: Call) -> dict[int, tuple[int, int]]:
    """The bytes of each storage that the call's arguments lie between; (0, 0) where these have no elements."""
    spans: dict[int, tuple[int, int]] = {}
    for view in views_in(call):
        first, last = spans.get(view.slot, (0, 0))
        if 0 not in view.size:
            start, end = view.offset * view.dtype.itemsize, view.extent * view.dtype.itemsize
            first, last = (min(first, start), max(last, end)) if first < last else (start, end)
        spans[view.slot] = first, last
    return spans


def _storage(start: int, data: torch.Tensor, device: str) -> torch.UntypedStorage:
    """A storage of the span's bytes, with those before them that the alignment asks for."""
    lead = start % ALIGNMENT
    if not lead and data.untyped_storage().nbytes() == data.numel() and str(data.device) == device:
        return data.untyped_storage()
    whole = torch.empty(lead + data.numel(), dtype=torch.uint8, device=device)
    whole[lead:].copy_(data)
    return whole.untyped_storage()
