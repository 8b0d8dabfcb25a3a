"""The distances of values in double, computed in pieces: a value in double takes twice its memory, or more."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ...torch_private.dispatching import bare_execution
from ..large_values import give_back_pages
from .rounding import has_digits

PIECE = 1 << 16
"""The number of elements of a piece, whose doubles stay in the processor's cache. A smaller value is one piece."""

DEVICE_PIECE = 1 << 22
"""The same on an accelerator, which computes a large piece nearly as fast as a small one."""


def sum_of_squares(value: torch.Tensor, other: torch.Tensor | None = None) -> float:
    """Return the sum of the squares of the finite elements of a tensor, or of its difference from another tensor."""
    with bare_execution(), torch.no_grad():
        if value.numel() <= PIECE:  # as below, in less time: replays compare thousands of small values
            found = finite_square(wide(value) if other is None else wide(value) - wide(other.to(value.device)))
            give_back_pages(value if other is None else other)
            return found
        if other is None:
            return sum(finite_square(wide(piece)) for (piece,) in in_pieces(value))
        return sum(finite_square(wide(left) - wide(right)) for left, right in in_pieces(value, other))


def distance_between(value: torch.Tensor, other: torch.Tensor) -> float:
    """Return the distance of two tensors over the elements that are finite in both, infinite if others are not."""
    if not has_digits(value):
        return 0.0
    total = 0.0
    with bare_execution(), torch.no_grad():
        for piece, other_piece in in_pieces(value, other):
            left, right = wide(piece), wide(other_piece)
            if not torch.equal(left.isfinite(), right.isfinite()):
                return math.inf
            total += finite_square(left - right)
    return math.sqrt(total)


def rounding_of(value: torch.Tensor) -> float:
    """Return the rounding of a tensor as a whole: u ||x||, with u half the spacing of numbers at 1."""
    return math.sqrt(sum_of_squares(value)) * torch.finfo(value.dtype).eps / 2


def in_pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield corresponding pieces of tensors of one shape, on the device of the first one."""
    device, count = tensors[0].device, tensors[0].numel()
    length = PIECE if device.type == "cpu" else DEVICE_PIECE
    if count <= length or not all(tensor.is_contiguous() for tensor in tensors):
        yield tuple([tensor.to(device) for tensor in tensors])
    else:
        flat = [tensor.reshape(-1) for tensor in tensors]
        for start in range(0, count, length):
            yield tuple([tensor[start : start + length].to(device) for tensor in flat])
    for tensor in tensors:
        give_back_pages(tensor)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in double. A complex tensor is split into its two parts, whose squared distances add up."""
    return torch.view_as_real(tensor).double() if tensor.is_complex() else tensor.double()


def finite_square(tensor: torch.Tensor) -> float:
    """Return the sum of the squares of the finite elements."""
    flat = tensor.reshape(-1)
    total = float(torch.dot(flat, flat).item())
    if math.isfinite(total):  # then every element is finite
        return total
    finite = torch.where(torch.isfinite(flat), flat, torch.zeros_like(flat))
    return float(torch.dot(finite, finite).item())
