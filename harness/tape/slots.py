"""The storages that a recording meets, numbered: what a tape knows a tensor by."""

from __future__ import annotations

import torch

from .. import torch_private
from .tape import NotReplayable, Slot, View


class SlotTable:
    """Gives storages their slots. Nothing is kept alive but the bytes of those that came from before the step."""

    def __init__(self) -> None:
        self.inputs: dict[int, torch.Tensor] = {}
        self._numbers: dict[int, int] = {}
        self._marks: list[torch_private.StorageMark] = []
        self._slots: list[Slot] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    def view(self, tensor: torch.Tensor, *, is_input: bool) -> View:
        """The tensor as a view; a storage that is new and `is_input` is copied as it is now.

        Raises NotReplayable for tensors that are no plain view of memory.
        """
        _require_plain(tensor)
        address = torch_private.storage_address(tensor)
        number = self._numbers.get(address)
        size = tensor.untyped_storage().nbytes()
        if number is None:
            number = self._numbers[address] = len(self._slots)
            self._marks.append(torch_private.StorageMark(tensor))
            self._slots.append(Slot(size, str(tensor.device), tensor.dtype))
            if is_input:
                self.inputs[number] = bytes_of_storage(tensor).clone()
        elif size > self._slots[number].size:  # an op has made it larger
            known = self._slots[number]
            self._slots[number] = Slot(size, known.device, known.dtype)
        return View(
            number, tensor.dtype, int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride())
        )

    def slot_of(self, tensor: torch.Tensor) -> int | None:
        """The slot of a tensor's storage, None for one that was not met."""
        return self._numbers.get(torch_private.storage_address(tensor))

    def tensor(self, view: View) -> torch.Tensor | None:
        """The tensor that a view stands for, on the storage itself; None where that is gone."""
        storage = self._marks[view.slot].storage()
        if storage is None or view.extent * view.dtype.itemsize > storage.nbytes():
            return None
        empty = torch.empty(0, dtype=view.dtype, device=storage.device)
        return empty.set_(storage, view.offset, view.size, view.stride)

    def assign(self, tensor: torch.Tensor, slot: int) -> None:
        """From now on the storage of this tensor is that of the slot, whatever it was before; others may be as well."""
        self._numbers[torch_private.storage_address(tensor)] = slot
        self._marks.append(torch_private.StorageMark(tensor))
        known = self._slots[slot]
        size = max(known.size, tensor.untyped_storage().nbytes())
        self._slots[slot] = Slot(size, known.device, known.dtype)


def bytes_of_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor, as bytes that share its memory."""
    storage = tensor.untyped_storage()
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))


def _require_plain(tensor: torch.Tensor) -> None:
    if torch_private.dispatches_itself(tensor):
        raise NotReplayable(f"a tensor is of the class {type(tensor).__name__}, which executes ops by itself")
    if tensor.layout != torch.strided:
        raise NotReplayable(f"a tensor is sparse or laid out otherwise ({tensor.layout})")
    if tensor.is_meta:
        raise NotReplayable("a tensor is on the device meta, it has no values")
    if tensor.is_quantized:
        raise NotReplayable("a tensor is quantized")
    if tensor.is_conj() or tensor.is_neg():
        raise NotReplayable("a tensor is a conjugate or negative view")
