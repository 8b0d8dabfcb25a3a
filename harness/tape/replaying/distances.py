"""The distances of values in double, computed in pieces: a value in double takes twice its memory, or more."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ...torch_private.dispatching import bare_execution
from ..large_values import give_back_pages
from .rounding import has_digits

PIECE = 1 << 22
"""The number of elements of a piece. A value with fewer elements is one piece."""


def sum_of_squares(value: torch.Tensor, other: torch.Tensor | None = None) -> float:
    """Return the sum of the squares of the finite elements of a tensor, or of its difference from another tensor."""
    total = 0.0
    for pieces in in_pieces(value) if other is None else in_pieces(value, other):
        total += finite_square(pieces[0] if other is None else pieces[0] - pieces[1])
    return total


def distance_between(value: torch.Tensor, other: torch.Tensor) -> float:
    """Return the distance of two tensors over the elements that are finite in both, infinite if others are not."""
    if not has_digits(value):
        return 0.0
    total = 0.0
    for left, right in in_pieces(value, other):
        if not torch.equal(left.isfinite(), right.isfinite()):
            return math.inf
        total += finite_square(left - right)
    return math.sqrt(total)


def rounding_of(value: torch.Tensor) -> float:
    """Return the rounding of a tensor as a whole: u ||x||, with u half the spacing of numbers at 1."""
    return math.sqrt(sum_of_squares(value)) * torch.finfo(value.dtype).eps / 2


def in_pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield corresponding pieces of tensors of one shape in double, on the device of the first one."""
    count = tensors[0].numel()
    if count <= PIECE or not all(tensor.is_contiguous() and tensor.numel() == count for tensor in tensors):
        flat, length = list(tensors), max(count, 1)
    else:
        flat, length = [tensor.detach().reshape(-1) for tensor in tensors], PIECE
    for start in range(0, max(count, 1), length):
        with bare_execution(), torch.no_grad():
            parts = flat if length >= count else [tensor[start : start + length] for tensor in flat]
            pieces = tuple(wide(part.to(tensors[0].device)) for part in parts)
        yield pieces
    for tensor in tensors:
        give_back_pages(tensor)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double. A complex tensor is split into its two parts, whose squared distances add up."""
    return torch.view_as_real(tensor).double() if tensor.is_complex() else tensor.double()


def finite_square(tensor: torch.Tensor) -> float:
    """Return the sum of the squares of the finite elements."""
    with bare_execution(), torch.no_grad():
        total = float(torch.dot(tensor.reshape(-1), tensor.reshape(-1)).item())
        if math.isfinite(total):  # then every element is finite
            return total
        finite = torch.where(torch.isfinite(tensor), tensor, torch.zeros_like(tensor))
        return float(torch.dot(finite.reshape(-1), finite.reshape(-1)).item())
