"""Which value a tensor carries: the edges of a graph of ops that are seen one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakIdKeyDictionary

from ..records.graph_record import Value

GIVEN = "given"
"""What a value is called that nothing in the graph has made."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A value, when it was written (the how-manieth write since the start), and where in memory it then was: memory
    that was given back since may hold anything."""

    name: str
    written: int
    place: tuple[int, ...] | None
    storage: StorageWeakRef | None

    @property
    def is_there(self) -> bool:
        return self.storage is not None and not self.storage.expired()


class Edges:
    """Names the values that tensors carry, through views, writes in place and what autograd has saved.

    A tensor is known by its Python object; one that comes back as another object (autograd gives saved tensors back
    like that) by its place in memory. What was written to a tensor's memory later is what it carries.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self._by_object = WeakIdKeyDictionary()
        self._by_place: dict[Hashable, Carried] = {}
        self._by_storage: dict[int, Carried] = {}
        self._names: Counter[str] = Counter()
        self._writes = 0

    def read(self, tensor: torch.Tensor, wanted: str = GIVEN) -> str:
        """The name of the value that a tensor carries now; one that was never met gets a value, named `wanted`."""
        carried = self._carried(tensor)
        return self.write(tensor, wanted) if carried is None else carried.name

    def write(self, tensor: torch.Tensor, wanted: str, *, in_place: bool = False) -> str:
        """Give a tensor a new value, named after `wanted`."""
        name = self._free_name(wanted)
        self._writes += 1
        place = _place(tensor)
        carried = Carried(
            name, self._writes, place, StorageWeakRef(tensor.untyped_storage()) if place else None
        )
        self._by_object[tensor] = carried
        if place is not None:
            self._by_place[place] = carried
            if in_place:
                self._by_storage[place[0]] = carried
        dtype = str(tensor.dtype).removeprefix("torch.")
        self.values[name] = Value(dtype, tuple(int(size) for size in tensor.shape))
        return name

    def _free_name(self, wanted: str) -> str:
        name = wanted
        while name in self.values:
            self._names[wanted] += 1
            name = f"{wanted}:{self._names[wanted]}"
        return name

    def _carried(self, tensor: torch.Tensor) -> Carried | None:
        place = _place(tensor)
        found: Carried | None = self._by_object.get(tensor)
        if place is None:
            return found
        if found is None or found.place != place:  # the script has put other memory under the tensor
            found = _if_there(self._by_place.get(place))
            if found is not None:
                self._by_object[tensor] = found
        overwritten = _if_there(self._by_storage.get(place[0]))
        if found is not None and overwritten is not None and overwritten.written > found.written:
            return overwritten
        return found


def _if_there(carried: Carried | None) -> Carried | None:
    return carried if carried is not None and carried.is_there else None


def _place(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Where the elements of a tensor are: its storage, offset, sizes and strides; None where it has no memory."""
    if tensor.layout != torch.strided or tensor.is_meta:
        return None
    try:
        storage = tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None
    if not storage:
        return None
    return (storage, tensor.storage_offset(), *tensor.shape, -1, *tensor.stride())
