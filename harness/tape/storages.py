"""The storages of one replay: made, viewed, and let go after their last use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from .tape import NotReplayable, Slot, Tape, View

Held = Callable[[torch.dtype], torch.dtype]
"""Says in which dtype a replay holds what was recorded in another."""


class Storages:
    """What a replay holds of a tape's slots; inputs are copied from the tape at their first use."""

    def __init__(self, tape: Tape, held: Held) -> None:
        self._tape = tape
        self._held = held
        self._live: dict[int, torch.UntypedStorage] = {}

    def tensor(self, view: View) -> torch.Tensor:
        """The tensor that a view stands for, on the replay's own memory."""
        storage = self._live.get(view.slot)
        if storage is None:
            storage = self._live[view.slot] = self._input(view.slot)
        return viewed(storage, view, self._dtype(view))

    def bind(self, view: View, tensor: torch.Tensor) -> None:
        """Let the view's slot begin with this tensor, laid out as it was recorded."""
        slot = self._tape.slots[view.slot]
        size = slot.size // slot.dtype.itemsize * self._held(slot.dtype).itemsize
        self._live[view.slot] = bound(tensor, view, replace(slot, size=size), self._dtype(view))

    def free(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._live.pop(slot, None)

    def _dtype(self, view: View) -> torch.dtype:
        """The dtype that the view is held in. Parts of a complex number are as wide as its parts."""
        dtype, first = self._held(view.dtype), self._tape.slots[view.slot].dtype
        unchanged = dtype == view.dtype and self._held(first) == first
        if view.dtype == first or unchanged or view.dtype.to_real() == first.to_real():
            return dtype
        raise NotReplayable(f"the bytes of a {_name(first)} tensor are also used as {_name(view.dtype)}")

    def _input(self, slot: int) -> torch.UntypedStorage:
        data = self._tape.inputs.get(slot)
        if data is None:
            raise NotReplayable("an op takes what no recorded op gave")
        recorded: Slot = self._tape.slots[slot]
        held = self._held(recorded.dtype)
        if held == recorded.dtype:
            return data.clone().untyped_storage()
        whole = data[: data.numel() // recorded.dtype.itemsize * recorded.dtype.itemsize]
        return whole.view(recorded.dtype).to(held).untyped_storage()


def viewed(storage: torch.UntypedStorage, view: View, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor that a view stands for, on this storage, which holds it in `dtype` (None: as it was recorded)."""
    empty = torch.empty(0, dtype=dtype or view.dtype, device=storage.device)
    return empty.set_(storage, view.offset, view.size, view.stride)


def bound(
    tensor: torch.Tensor, view: View, slot: Slot, dtype: torch.dtype | None = None
) -> torch.UntypedStorage:
    """The storage of a slot that begins with this tensor, laid out as it was recorded.

    Raises NotReplayable for another shape.
    """
    recorded = (view.offset, view.size, view.stride)
    if tensor.dtype == (dtype or view.dtype) and recorded == _layout(tensor):
        return tensor.untyped_storage()
    if tuple(tensor.size()) != view.size:
        raise NotReplayable(f"an op gives the shape {tuple(tensor.size())}, recorded was {view.size}")
    made = torch.UntypedStorage(slot.size, device=slot.device)
    viewed(made, view, dtype).copy_(tensor)
    return made


def _layout(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
