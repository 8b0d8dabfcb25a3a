"""The layout of a tensor in memory, and copies of tensors in a different layout.

A kernel may sum the elements of such a copy in a different order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch

from ..tape import View
from ..tape_arguments import whole
from .replay import is_same

ALIGNMENT = 64
"""Torch aligns the memory that it allocates to a multiple of this number of bytes."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """The layout of a tensor: size and stride in elements, and its `start` in bytes modulo ALIGNMENT."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    start: int

    @classmethod
    def of(cls, tensor: torch.Tensor | View) -> Self:
        """Return the layout of a tensor or of a view's tensor. The `start` of an empty tensor is 0."""
        if isinstance(tensor, View):
            size, stride, start = tensor.size, tensor.stride, tensor.offset * tensor.dtype.itemsize
        else:
            size, stride = tuple(tensor.size()), tuple(tensor.stride())
            start = int(tensor.storage_offset()) * tensor.element_size()
        return cls(size, stride, 0 if 0 in size else start % ALIGNMENT)

    def to_json(self) -> list[Any]:
        return [list(self.size), list(self.stride), self.start]

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read the layout from the result of `to_json`. Raises ValueError and TypeError."""
        size, stride, start = data
        return cls(tuple(map(whole, size)), tuple(map(whole, stride)), whole(start))


def relaid(tensor: torch.Tensor, wanted: LaidOut) -> torch.Tensor:
    """Return a copy of a tensor in the wanted layout.

    Raises ValueError if the wanted size is not the tensor's, or if elements with different values would share memory.
    """
    if tuple(tensor.size()) != wanted.size:
        raise ValueError(f"a tensor of {tuple(tensor.size())} cannot be laid out as one of {wanted.size}")
    item = tensor.element_size()
    extent = (
        0 if 0 in wanted.size else 1 + sum((n - 1) * step for n, step in zip(wanted.size, wanted.stride, strict=True))
    )
    memory = torch.zeros(wanted.start + extent * item, dtype=torch.uint8, device=tensor.device)
    result = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    result.set_(memory.untyped_storage(), wanted.start // item, wanted.size, wanted.stride)
    # The elements along an expanded dimension share their memory, which is written once.
    once = tuple(
        slice(0, 1) if not step and n > 1 else slice(None) for n, step in zip(wanted.size, wanted.stride, strict=True)
    )
    result[once].copy_(tensor[once])
    if not is_same(result, tensor):
        raise ValueError("elements of different values would share memory")
    return result
