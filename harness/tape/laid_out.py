"""How a tensor lies in memory, and the same values laid out otherwise: a kernel may add up in another order there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from .replay import is_same
from .tape import View
from .tape_arguments import whole

ALIGNMENT = 64
"""Bytes to a multiple of which torch aligns the memory that it allocates."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Size and stride count elements; `start` is how many bytes behind a multiple of ALIGNMENT it begins."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    @classmethod
    def of(cls, one: torch.Tensor | View) -> Self:
        """The layout of a tensor, or of what a view stands for; an empty one begins nowhere."""
        if isinstance(one, View):
            size, stride, start = one.size, one.stride, one.offset * one.dtype.itemsize
        else:
            size, stride = tuple(one.size()), tuple(one.stride())
            start = int(one.storage_offset()) * one.element_size()
        return cls(size, stride, 0 if 0 in size else start % ALIGNMENT)

    def to_json(self) -> list[Any]:
        return [list(self.size), list(self.stride), self.start]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises ValueError and TypeError."""
        size, stride, start = data
        return cls(tuple(map(whole, size)), tuple(map(whole, stride)), whole(start))


def relaid(tensor: torch.Tensor, wanted: LaidOut) -> torch.Tensor:
    """The values of a tensor in memory of its own that is laid out so. Raises ValueError for another size, and for a
    layout in which elements of different values share memory."""
    if tuple(tensor.size()) != wanted.size:
        raise ValueError(f"a tensor of {tuple(tensor.size())} cannot be laid out as one of {wanted.size}")
    item = tensor.element_size()
    extent = (
        0 if 0 in wanted.size else 1 + sum((n - 1) * step for n, step in zip(wanted.size, wanted.stride, strict=True))
    )
    memory = torch.zeros(wanted.start + extent * item, dtype=torch.uint8, device=tensor.device)
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    made.set_(memory.untyped_storage(), wanted.start // item, wanted.size, wanted.stride)
    # An expanded dimension has one place for all of its elements, which are the same one: it is written once.
    once = tuple(
        slice(0, 1) if not step and n > 1 else slice(None) for n, step in zip(wanted.size, wanted.stride, strict=True)
    )
    made[once].copy_(tensor[once])
    if not is_same(made, tensor):
        raise ValueError("elements of different values would share memory")
    return made
