"""Kernels of `sum` and `mean`, which add the elements in different orders.

Elements are summed in the order of the reduced dimensions in the tensor's shape, not in memory order. bfloat16 and
float16 are summed in float32 and rounded once, as in ATen; `bf16` rounds each addition to bfloat16. A mean divides the
sum by the number of elements, before the last rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from numdrift.harness.errors import NotAvailable

from ..native import library
from .precision import computing

aten = torch.ops.aten
Tensor = torch.Tensor
RowSum = Callable[[Tensor], Tensor]
Dims = Sequence[int] | int | None

LONGEST_SEQUENCE = 4096
"""The largest number of elements that `sequential` and `kahan`, which add one by one, sum without C code."""


def sequential_rows(matrix: Tensor) -> Tensor:
    """Return the sum of each row x of a matrix [rows, n], computed as s = 0; s = s + x[i] for i = 0, 1, ..."""
    native = library.rows("sum_sequential", matrix)
    if native is not None:
        return native
    _check_length("sequential", matrix)
    total = matrix.new_zeros(matrix.shape[0])
    for place in range(matrix.shape[1]):
        total = total + matrix[:, place]
    return total


def kahan_rows(matrix: Tensor) -> Tensor:
    """Compute s = c = 0; y = x[i] - c; t = s + y; c = (t - s) - y; s = t. An infinity makes the result NaN.

    Source: W. Kahan, Further Remarks on Reducing Truncation Errors, CACM 8(1), 1965.
    """
    native = library.rows("sum_kahan", matrix)
    if native is not None:
        return native
    _check_length("kahan", matrix)
    total = lost = matrix.new_zeros(matrix.shape[0])
    for place in range(matrix.shape[1]):
        addend = matrix[:, place] - lost
        following = total + addend
        lost = (following - total) - addend
        total = following
    return total


def pairwise_rows(matrix: Tensor) -> Tensor:
    """Compute S(x) = S(x[: n // 2]) + S(x[n // 2 :]), down to single elements."""
    native = library.rows("sum_pairwise", matrix)
    return halved_rows(matrix) if native is None else native


def halved_rows(matrix: Tensor) -> Tensor:
    """Return the pairwise sum of each row of a matrix [rows, n], with torch operations, level by level from the bottom.

    After floor(log2(n)) halvings every part has one or two elements.
    """
    n = matrix.shape[1]
    if n == 0:
        return matrix.new_zeros(matrix.shape[0])
    # The sizes of the parts, left to right: 7 elements are split into 3 + 4, and then into 1 + 2 + 2 + 2.
    depth = n.bit_length() - 1
    sizes = torch.tensor([n])
    for _ in range(depth):
        sizes = torch.stack((sizes // 2, sizes - sizes // 2), 1).flatten()
    starts = sizes.cumsum(0) - sizes
    first = matrix.index_select(1, starts.to(matrix.device))
    last = matrix.index_select(1, (starts + sizes - 1).to(matrix.device))
    level = torch.where((sizes == 2).to(matrix.device), first + last, first)
    for _ in range(depth):
        level = level[:, 0::2] + level[:, 1::2]
    return level.squeeze(1)


def reversed_rows(matrix: Tensor) -> Tensor:
    """Compute ATen's sum of the elements from last to first."""
    return matrix.flip(1).sum(1)


def _check_length(order: str, matrix: Tensor) -> None:
    if matrix.shape[1] > LONGEST_SEQUENCE:
        raise NotAvailable(
            f"kernel {order} of a sum",
            f"{matrix.shape[1]} elements are more than the {LONGEST_SEQUENCE} that torch operations add one by one",
            "install a C compiler (cc, gcc or clang), which lifts the limit on the CPU",
        )


@dataclass(frozen=True, slots=True)
class Summation:
    """`sum` and `mean` with one way to sum rows.

    Each addition rounds to `dtype`; None means the dtype in which ATen computes.
    """

    rows: RowSum
    dtype: torch.dtype | None = None

    def sum(self, x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
        if not (dtype or x.dtype).is_floating_point:  # integers do not round, so the order is irrelevant
            result: Tensor = aten.sum(x, dim, keepdim, dtype=dtype)
            return result
        result_dtype, dims = dtype or x.dtype, reduced_dims(x, dim)
        sums = self.rows(rows_of(x.to(self.dtype or computing(result_dtype)), dims))
        return sums.reshape(reduced_shape(x, dims, keepdim)).to(result_dtype)

    def mean(self, x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
        result_dtype, dims = dtype or x.dtype, reduced_dims(x, dim)
        rows = rows_of(x.to(self.dtype or computing(result_dtype)), dims)
        return (self.rows(rows) / rows.shape[1]).reshape(reduced_shape(x, dims, keepdim)).to(result_dtype)


def reduced_dims(x: Tensor, dim: Dims) -> list[int]:
    """Return the reduced dimensions in ascending order; None and an empty list mean all."""
    if isinstance(dim, int):
        dim = [dim]
    return sorted(axis % x.dim() for axis in dim) if dim and x.dim() else list(range(x.dim()))


def rows_of(x: Tensor, dims: Sequence[int]) -> Tensor:
    """Return a matrix [rows, n]: each row has the elements of one sum; rows are in the order of the kept dimensions."""
    kept = [axis for axis in range(x.dim()) if axis not in dims]
    rows = math.prod(x.shape[axis] for axis in kept)
    return x.permute((*kept, *dims)).reshape(rows, math.prod(x.shape[axis] for axis in dims))


def reduced_shape(x: Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    """Return the shape of the result."""
    if keepdim:
        return [1 if axis in dims else size for axis, size in enumerate(x.shape)]
    return [size for axis, size in enumerate(x.shape) if axis not in dims]


_SEQUENTIAL, _PAIRWISE, _KAHAN = Summation(sequential_rows), Summation(pairwise_rows), Summation(kahan_rows)
_REVERSED, _BF16 = Summation(reversed_rows), Summation(halved_rows, torch.bfloat16)

sum_sequential, mean_sequential = _SEQUENTIAL.sum, _SEQUENTIAL.mean
sum_pairwise, mean_pairwise = _PAIRWISE.sum, _PAIRWISE.mean
sum_kahan, mean_kahan = _KAHAN.sum, _KAHAN.mean
sum_reversed, mean_reversed = _REVERSED.sum, _REVERSED.mean
sum_bf16, mean_bf16 = _BF16.sum, _BF16.mean
