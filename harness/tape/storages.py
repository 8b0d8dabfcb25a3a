"""The memory that a tape's tensors lie in: numbered while a step is recorded, made and freed while it is replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..torch_private.dispatching import StorageMark, dispatches_itself, storage_address
from .tape import Call, NotReplayable, Slot, Tape, View
from .tape_arguments import name_of

Held = Callable[[torch.dtype], torch.dtype]
"""Says in which dtype a replay holds what was recorded in another."""


class HeldSlots:
    """The slots of a tape as a replay holds them: in the recorded dtypes, or in others."""

    def __init__(self, tape: Tape, held: Held = lambda recorded: recorded) -> None:
        self._tape = tape
        self._held = held

    def tensor(self, storage: torch.UntypedStorage, view: View) -> torch.Tensor:
        """The tensor that a view stands for, on this storage of its slot."""
        return viewed(storage, view, self._dtype(view))

    def bound(self, view: View, tensor: torch.Tensor) -> torch.UntypedStorage:
        """The storage of the view's slot that begins with this tensor, laid out as it was recorded."""
        slot = replace(self._tape.slots[view.slot], size=self.size(view.slot))
        return bound(tensor, view, slot, self._dtype(view))

    def size(self, slot: int) -> int:
        """Of the storage, in bytes."""
        recorded = self._tape.slots[slot]
        held = self._held(recorded.dtype)
        if held == recorded.dtype:
            return recorded.size
        return recorded.size // recorded.dtype.itemsize * held.itemsize

    def content(self, slot: int, data: torch.Tensor) -> torch.UntypedStorage:
        """A storage of the slot with this recorded content, given as bytes."""
        recorded: Slot = self._tape.slots[slot]
        held = self._held(recorded.dtype)
        if held == recorded.dtype:
            # A copy, for ops in place write into what they are given, and a tape is replayed many times.
            return data.to(recorded.device, copy=True).untyped_storage()
        # A storage may end within an element: bytes behind the last whole one are no value. It is converted here,
        # as the device has no memory to spare for a second copy.
        whole = data[: data.numel() // recorded.dtype.itemsize * recorded.dtype.itemsize]
        return whole.view(recorded.dtype).to(held).to(recorded.device).untyped_storage()

    def _dtype(self, view: View) -> torch.dtype:
        """The dtype that the view is held in. Parts of a complex number are as wide as its parts."""
        dtype, first = self._held(view.dtype), self._tape.slots[view.slot].dtype
        unchanged = dtype == view.dtype and self._held(first) == first
        if view.dtype == first or unchanged or view.dtype.to_real() == first.to_real():
            return dtype
        raise NotReplayable(f"the bytes of a {name_of(first)} tensor are also used as {name_of(view.dtype)}")


class Storages:
    """What a replay holds of a tape's slots; inputs are copied from the tape at their first use."""

    def __init__(self, tape: Tape, held: Held) -> None:
        self._inputs = tape.inputs
        self._slots = HeldSlots(tape, held)
        self._live: dict[int, torch.UntypedStorage] = {}

    def tensor(self, view: View) -> torch.Tensor:
        """The tensor that a view stands for, on the replay's own memory."""
        storage = self._live.get(view.slot)
        if storage is None:
            data = self._inputs.get(view.slot)
            if data is None:
                raise NotReplayable("an op takes what no recorded op gave")
            storage = self._live[view.slot] = self._slots.content(view.slot, data)
        return self._slots.tensor(storage, view)

    def bind(self, view: View, tensor: torch.Tensor) -> None:
        """Let the view's slot begin with this tensor, laid out as it was recorded."""
        self._live[view.slot] = self._slots.bound(view, tensor)

    def take(self, call: Call, outputs: Sequence[Any]) -> None:
        """Let the fresh results of a call be these, all that it gave. Raises NotReplayable for another number."""
        if len(outputs) != len(call.outputs):
            raise NotReplayable(f"{call.op} gives {len(outputs)} results, recorded were {len(call.outputs)}")
        for view, fresh, output in zip(call.outputs, call.fresh, outputs, strict=True):
            if fresh:
                self.bind(view, output)

    def free(self, slots: Iterable[int]) -> None:
        for slot in slots:
            self._live.pop(slot, None)


def viewed(storage: torch.UntypedStorage, view: View, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The tensor that a view stands for, on this storage, which holds it in `dtype` (None: as it was recorded)."""
    empty = torch.empty(0, dtype=dtype or view.dtype, device=storage.device)
    return empty.set_(storage, view.offset, view.size, view.stride)


def bound(tensor: torch.Tensor, view: View, slot: Slot, dtype: torch.dtype | None = None) -> torch.UntypedStorage:
    """The storage of a slot that begins with this tensor, laid out as it was recorded.

    Raises NotReplayable for another shape.
    """
    recorded = (view.offset, view.size, view.stride)
    there = str(tensor.device) == slot.device
    if (
        there
        and tensor.dtype == (dtype or view.dtype)
        and recorded
        == (
            int(tensor.storage_offset()),
            tuple(tensor.size()),
            tuple(tensor.stride()),
        )
    ):
        return tensor.untyped_storage()
    if tuple(tensor.size()) != view.size:
        raise NotReplayable(f"an op gives the shape {tuple(tensor.size())}, recorded was {view.size}")
    # Kernels may sum in another order on another layout, so a result is laid out again as it was recorded.
    made = torch.UntypedStorage(slot.size, device=slot.device)
    viewed(made, view, dtype).copy_(tensor)
    return made


# The storages that a recording meets, numbered: what a tape knows a tensor by.


class SlotTable:
    """Gives storages their slots. Nothing is kept alive but the bytes of those that came from before the step: they
    are kept in the CPU's memory, for an accelerator has none to spare beside a training."""

    def __init__(self) -> None:
        self.inputs: dict[int, torch.Tensor] = {}
        self._numbers: dict[int, int] = {}
        self._marks: list[StorageMark] = []
        self._others: list[
            StorageMark
        ] = []  # of storages that stand for a slot besides its own, kept for their addresses
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
        if dispatches_itself(tensor):
            raise NotReplayable(f"a tensor is of the class {type(tensor).__name__}, which executes ops by itself")
        if tensor.layout != torch.strided:
            raise NotReplayable(f"a tensor is sparse or laid out otherwise ({tensor.layout})")
        if tensor.is_meta:
            raise NotReplayable("a tensor is on the device meta, it has no values")
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
            # The mark keeps the address taken: a freed one would be given to another storage, which would
            # then have this slot.
            self._slots.append(Slot(size, str(tensor.device), tensor.dtype))
            if is_input:
                self.inputs[number] = bytes_of_storage(tensor).to("cpu", copy=True)
        elif size > self._slots[number].size:  # an op has made it larger
            self._slots[number] = replace(self._slots[number], size=size)
        return View(number, tensor.dtype, int(tensor.storage_offset()), tuple(tensor.size()), tuple(tensor.stride()))

    def slot_of(self, tensor: torch.Tensor) -> int | None:
        """The slot of a tensor's storage, None for one that was not met."""
        return self._numbers.get(storage_address(tensor))

    def tensor(self, view: View) -> torch.Tensor | None:
        """The tensor that a view stands for, on the storage itself; None where that is gone."""
        storage = self._marks[view.slot].storage()
        if storage is None or view.extent * view.dtype.itemsize > storage.nbytes():
            return None
        return viewed(storage, view)

    def renew(self, tensor: torch.Tensor) -> None:
        """What the tensor's storage holds was put there past every op: from now on it is an input like one that comes
        from before the step. What took the storage before keeps its slot, with what it held then."""
        self._numbers.pop(storage_address(tensor), None)
        self.view(tensor, is_input=True)

    def assign(self, tensor: torch.Tensor, slot: int) -> None:
        """From now on the storage of this tensor is that of the slot, whatever it was before; others may be as well."""
        self._numbers[storage_address(tensor)] = slot
        self._others.append(StorageMark(tensor))
        known = self._slots[slot]
        self._slots[slot] = replace(known, size=max(known.size, tensor.untyped_storage().nbytes()))


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view of memory, and nothing else."""
    other = dispatches_itself(tensor) or tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized
    return not (other or tensor.is_conj() or tensor.is_neg())


def bytes_of_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of a tensor, as bytes that share its memory."""
    storage = tensor.untyped_storage()
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))
