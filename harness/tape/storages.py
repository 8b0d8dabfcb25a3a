"""The storages of a tape's tensors: numbered while a step is recorded, created and freed while it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..torch_private.dispatching import StorageMark, dispatches_itself, storage_address
from .large_values import LargeValues, give_back_pages
from .tape import Call, NotReplayable, Slot, Tape, View
from .tape_arguments import name_of

Held = Callable[[torch.dtype], torch.dtype]
"""Returns the dtype in which a replay holds a value; called with the recorded dtype."""


class HeldSlots:
    """The slots of a tape in a replay, with the recorded dtypes or different ones."""

    def __init__(self, tape: Tape, held: Held = lambda recorded: recorded) -> None:
        self._tape = tape
        self._held = held

    def tensor(self, storage: torch.UntypedStorage, view: View) -> torch.Tensor:
        """Return the tensor of a view, on this storage of the view's slot."""
        return viewed(storage, view, self._dtype(view))

    def bound(self, view: View, tensor: torch.Tensor) -> torch.UntypedStorage:
        """Return a storage for the view's slot that contains this tensor, in the recorded layout."""
        if self.fits(view, tensor):
            return tensor.untyped_storage()
        slot = replace(self._tape.slots[view.slot], size=self.size(view.slot))
        return bound(tensor, view, slot, self._dtype(view))

    def fits(self, view: View, tensor: torch.Tensor) -> bool:
        """Check whether a tensor has the dtype, the layout and the device of the view in the replay."""
        return is_laid_out(tensor, view, self._tape.slots[view.slot], self._dtype(view))

    def size(self, slot: int) -> int:
        """Return the size of a slot's storage, in bytes."""
        recorded = self._tape.slots[slot]
        held = self._held(recorded.dtype)
        if held == recorded.dtype:
            return recorded.size
        return recorded.size // recorded.dtype.itemsize * held.itemsize

    def content(self, slot: int, data: torch.Tensor) -> torch.UntypedStorage:
        """Return a storage of the slot with this recorded content, given as bytes."""
        recorded: Slot = self._tape.slots[slot]
        held = self._held(recorded.dtype)
        if held == recorded.dtype:
            # Copy the content: in-place ops write to it, and a tape is replayed many times.
            content = data.to(recorded.device, copy=True)
        else:
            # A storage may end within an element, so bytes after the last whole element are left out. The dtype is
            # converted on the CPU, since the device may lack memory for a second copy.
            whole = data[: data.numel() // recorded.dtype.itemsize * recorded.dtype.itemsize]
            content = whole.view(recorded.dtype).to(held).to(recorded.device)
        give_back_pages(data)
        return content.untyped_storage()

    def _dtype(self, view: View) -> torch.dtype:
        """Return the dtype of the view in the replay.

        Raises NotReplayable if the slot is used in two dtypes and one of them changes. A complex dtype and its real
        dtype may share a slot, since both change in the same way.
        """
        dtype, first = self._held(view.dtype), self._tape.slots[view.slot].dtype
        if view.dtype == first or (dtype == view.dtype and self._held(first) == first):
            return dtype
        if view.dtype.to_real() == first.to_real():
            return dtype
        raise NotReplayable(f"the bytes of a {name_of(first)} tensor are also used as {name_of(view.dtype)}")


class Storages:
    """The storages of a tape's slots during a replay; inputs are copied from the tape at their first use."""

    def __init__(self, tape: Tape, held: Held) -> None:
        self._inputs = tape.inputs
        self._slots = HeldSlots(tape, held)
        self._live: dict[int, torch.UntypedStorage] = {}
        self._results: dict[int, tuple[View, torch.Tensor]] = {}  # by slot, the result that its storage belongs to

    def read(self, view: View) -> torch.Tensor:
        """Return the tensor of a view for an op that does not write to it, perhaps the same one each time."""
        result = self._results.get(view.slot)
        return result[1] if result is not None and result[0] == view else self.tensor(view)

    def tensor(self, view: View) -> torch.Tensor:
        """Return a new tensor of a view, on the replay's own memory."""
        storage = self._live.get(view.slot)
        if storage is None:
            data = self._inputs.get(view.slot)
            if data is None:
                raise NotReplayable("an op takes a tensor that no recorded op returned")
            storage = self._live[view.slot] = self._slots.content(view.slot, data)
        return self._slots.tensor(storage, view)

    def bind(self, view: View, tensor: torch.Tensor) -> None:
        """Set the storage of the view's slot to one that contains this tensor, in the recorded layout."""
        if self._slots.fits(view, tensor):
            self._live[view.slot], self._results[view.slot] = tensor.untyped_storage(), (view, tensor)
        else:
            self._live[view.slot] = self._slots.bound(view, tensor)
            self._results.pop(view.slot, None)

    def take(self, call: Call, outputs: Sequence[Any]) -> None:
        """Bind the fresh outputs of a call to their slots. Raises NotReplayable if the number of outputs differs."""
        if len(outputs) != len(call.outputs):
            raise NotReplayable(f"{call.op} returned {len(outputs)} results, but {len(call.outputs)} are recorded")
        for view, fresh, output in zip(call.outputs, call.fresh, outputs, strict=True):
            if fresh:
                self.bind(view, output)

    def free(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._live.pop(slot, None)
            self._results.pop(slot, None)


def viewed(storage: torch.UntypedStorage, view: View, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return the tensor of a view on this storage, which holds it in `dtype` (None: the recorded dtype)."""
    empty = torch.empty(0, dtype=dtype or view.dtype, device=storage.device)
    return empty.set_(storage, view.offset, view.size, view.stride)


def is_laid_out(tensor: torch.Tensor, view: View, slot: Slot, dtype: torch.dtype) -> bool:
    """Check whether a tensor has this dtype, the recorded layout and the recorded device."""
    return (
        tensor.dtype == dtype
        and tensor.size() == view.size
        and tensor.stride() == view.stride
        and tensor.storage_offset() == view.offset
        and ("cpu" if tensor.is_cpu else str(tensor.device)) == slot.device
    )


def bound(tensor: torch.Tensor, view: View, slot: Slot, dtype: torch.dtype | None = None) -> torch.UntypedStorage:
    """Return a storage for a slot that contains this tensor, in the recorded layout.

    Raises NotReplayable if the tensor does not have the recorded shape.
    """
    if is_laid_out(tensor, view, slot, dtype or view.dtype):
        return tensor.untyped_storage()
    if tuple(tensor.size()) != view.size:
        raise NotReplayable(f"an op returned the shape {tuple(tensor.size())}, but {view.size} is recorded")
    # Kernels may sum in a different order in a different layout, so a result is copied to the recorded layout.
    made = torch.UntypedStorage(slot.size, device=slot.device)
    viewed(made, view, dtype).copy_(tensor)
    return made


# The numbered storages of a recording; a tape identifies the memory of a tensor by the number of its storage.


class SlotTable:
    """The slots of the storages that a recording encounters.

    The table keeps no storage alive. Storages that exist before the step are copied to the CPU's memory, since an
    accelerator has no memory to spare while a script trains, or to a file if `values` has one.
    """

    def __init__(self, values: LargeValues | None = None) -> None:
        self.inputs: dict[int, torch.Tensor] = {}
        self._values = values or LargeValues()
        self._numbers: dict[int, int] = {}
        self._marks: list[StorageMark] = []
        self._others: list[StorageMark] = []  # further storages of a slot; the marks keep their addresses in use
        self._slots: list[Slot] = []

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    def view(self, tensor: torch.Tensor, *, is_input: bool) -> View:
        """Return the tensor as a view. If its storage is new and `is_input` is true, the present content is copied.

        Raises NotReplayable for a tensor that is not a plain view of memory.
        """
        if dispatches_itself(tensor):
            raise NotReplayable(f"a tensor is of the class {type(tensor).__name__}, which executes ops itself")
        if tensor.layout != torch.strided:
            raise NotReplayable(f"a tensor has the layout {tensor.layout}, not {torch.strided}")
        if tensor.is_meta:
            raise NotReplayable("a tensor is on the device meta and has no values")
        if tensor.is_quantized:
            raise NotReplayable("a tensor is quantized")
        if tensor.is_conj() or tensor.is_neg():
            raise NotReplayable("a tensor is a conjugate or negative view")
        address = storage_address(tensor)
        number = self._numbers.get(address)
        size = tensor.untyped_storage().nbytes()
        if number is None:
            number = self._numbers[address] = len(self._slots)
            self._marks.append(StorageMark(tensor))
            # The mark keeps the address in use. Another storage might otherwise get the address, and with it this slot.
            self._slots.append(Slot(size, str(tensor.device), tensor.dtype))
            if is_input:
                self.inputs[number] = self._values.copy(bytes_of_storage(tensor))
        elif size > self._slots[number].size:  # an op has enlarged the storage
            self._slots[number] = replace(self._slots[number], size=size)
        return View(number, tensor.dtype, int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride()))

    def slot_of(self, tensor: torch.Tensor) -> int | None:
        """Return the slot of a tensor's storage, None if it has none."""
        return self._numbers.get(storage_address(tensor))

    def tensor(self, view: View) -> torch.Tensor | None:
        """Return the tensor of a view on the storage itself, None if the storage no longer exists."""
        storage = self._marks[view.slot].storage()
        if storage is None or view.extent * view.dtype.itemsize > storage.nbytes():
            return None
        return viewed(storage, view)

    def renew(self, tensor: torch.Tensor) -> None:
        """Give the tensor's storage a new slot, as an input, since its content was written without any op.

        Earlier uses of the storage keep the old slot, with the content that the storage had then.
        """
        self._numbers.pop(storage_address(tensor), None)
        self.view(tensor, is_input=True)

    def assign(self, tensor: torch.Tensor, slot: int) -> None:
        """Assign the slot to this tensor's storage from now on; several storages may have the same slot."""
        self._numbers[storage_address(tensor)] = slot
        self._others.append(StorageMark(tensor))
        current = self._slots[slot]
        self._slots[slot] = replace(current, size=max(current.size, tensor.untyped_storage().nbytes()))


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a plain view of memory."""
    is_special = dispatches_itself(tensor) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized
    return not (is_special or tensor.is_conj() or tensor.is_neg())


def bytes_of_storage(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor as bytes, which share its memory."""
    storage = tensor.untyped_storage()
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))
