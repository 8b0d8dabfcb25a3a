"""The division of tensors into rows and slices, which are digested together (see `torch_digest`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .digest_hash import BLOCK, STRIPE

WIDE = 64
"""Blocks of a wide row."""

SLICE = 1 << 24
"""The most bytes of a slice on an accelerator. A slice has at most a quarter as many elements."""

HOST_SLICE = 1 << 20
"""The same on the CPU, whose caches are small."""


@dataclass(frozen=True, slots=True)
class RowPart:
    """The elements `begin` to `end` of a tensor, and the number of zeros that fill its last row."""

    tensor: int
    begin: int
    end: int
    zeros: int


@dataclass(frozen=True, slots=True)
class RowSlice:
    """Rows of `width` blocks that are digested together: those from `begin` to `end` of all rows."""

    dtype: torch.dtype
    width: int
    begin: int
    end: int
    parts: tuple[RowPart, ...]


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The slices of a list of tensors, wide ones first.

    index: int64 [3, rows] on the device: the number of a row's first block in its tensor, and the stripes and elements
        of the row that are its tensor's
    owners: int64 [rows] on the CPU: the tensor of each row
    """

    slices: tuple[RowSlice, ...]
    index: torch.Tensor
    owners: torch.Tensor


def plan_of(sizes: Sequence[tuple[int, torch.dtype]], device: torch.device) -> RowPlan:
    """Divide tensors, given by their numbers of elements and dtypes, into rows and slices."""
    most = HOST_SLICE if device.type == "cpu" else SLICE
    slices: list[RowSlice] = []
    firsts: list[int] = []
    elements: list[int] = []
    owners: list[int] = []
    stripes: list[int] = []
    for width in (WIDE, 1):
        for dtype in dict.fromkeys(dtype for _, dtype in sizes):
            block = BLOCK // dtype.itemsize
            length = width * block
            room = min(most // dtype.itemsize, most // 4) // length  # rows of a slice
            parts: list[RowPart] = []
            begun = len(owners)
            for number, (numel, own) in enumerate(sizes):
                in_wide = numel - numel % (WIDE * block)
                begin, end = (0, in_wide) if width == WIDE else (in_wide, numel)
                while own == dtype and begin < end:
                    rows = min(-(-(end - begin) // length), room - (len(owners) - begun))
                    upto = min(end, begin + rows * length)
                    zeros = begin + rows * length - upto
                    parts.append(RowPart(number, begin, upto, zeros))
                    firsts += range(begin // block, begin // block + rows * width, width)
                    elements += [length] * (rows - 1) + [length - zeros]
                    owners += [number] * rows
                    begin = upto
                    if len(owners) - begun == room:
                        slices.append(RowSlice(dtype, width, begun, len(owners), tuple(parts)))
                        parts, begun = [], len(owners)
            if parts:
                slices.append(RowSlice(dtype, width, begun, len(owners), tuple(parts)))
            stripes += [-(-count * dtype.itemsize // STRIPE) for count in elements[len(stripes) :]]
    index = torch.tensor([firsts, stripes, elements], dtype=torch.int64, device="cpu")
    return RowPlan(tuple(slices), index.to(device), torch.tensor(owners, dtype=torch.int64, device="cpu"))
