"""The kinds of tensors of an aten node, on which a backend's support for the node depends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


class Unanswerable(ValueError):
    """A node whose support no backend can determine: an input is not a tensor, or its sizes are not numbers."""


@dataclass(frozen=True, slots=True)
class TensorKind:
    """The properties of a tensor that decide support: all but its values. Shape and strides are in elements."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: torch.device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorKind:
        """Return the kind of a tensor. Raise Unanswerable if a size is not a number."""
        sizes = (*tensor.shape, *tensor.stride())
        if not all(isinstance(size, int) for size in sizes):
            raise Unanswerable(f"the shape {tuple(tensor.shape)} is not static")
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.device)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"

    def empty(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)

    def example(self) -> torch.Tensor:
        """Return a tensor on the CPU that almost every op accepts.

        It is an identity matrix if the last two dimensions are equal, else ones; integers are zeros.
        """
        numbers = self.dtype.is_floating_point or self.dtype.is_complex
        extent = extent_of(self.shape, self.stride)
        made = torch.full((extent,), int(numbers), dtype=self.dtype, device="cpu")
        view = made.as_strided(self.shape, self.stride)
        square = len(self.shape) > 1 and self.shape[-1] == self.shape[-2]
        if numbers and square and extent == view.numel():
            view.copy_(torch.eye(self.shape[-1], dtype=torch.float32))
        return view


def extent_of(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements of memory that a tensor spans; an expanded tensor has more elements than that."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
