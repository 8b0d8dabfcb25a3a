"""Sums as accurate as if computed with twice the digits of float64.

Each addition's rounding error is computed exactly and summed along (TwoSum). Source: T. Ogita, S. Rump, S.
Oishi, Accurate Sum and Dot Product, SIAM J. Sci. Comput. 26(6), 2005, algorithm 4.4, over a tree of
additions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..implementations.sums import reduced_dims, reduced_shape, rows_of

Tensor = torch.Tensor


def sum(
    self: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The sum of float64 numbers, correct to float64's rounding unless it cancels 30 digits or more."""
    dims = reduced_dims(self, dim)
    return compensated(rows_of(self, dims)).reshape(reduced_shape(self, dims, keepdim))


def mean(
    self: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The sum divided by the number of elements."""
    dims = reduced_dims(self, dim)
    rows = rows_of(self, dims)
    return (compensated(rows) / rows.shape[1]).reshape(reduced_shape(self, dims, keepdim))


def compensated(rows: Tensor) -> Tensor:
    """[rows, n] -> [rows]. Where an infinity or NaN takes part, it is the plain sum."""
    high, low = rows, torch.zeros_like(rows)
    while high.shape[1] > 1:
        if high.shape[1] % 2:
            high, low = (torch.nn.functional.pad(one, (0, 1)) for one in (high, low))
        a, b = high[:, 0::2], high[:, 1::2]
        total = a + b
        virtual = total - a
        error = (a - (total - virtual)) + (b - virtual)
        high, low = total, low[:, 0::2] + low[:, 1::2] + error
    plain = rows.sum(1)
    exact = (high + low).sum(1)
    return torch.where(torch.isfinite(plain) & torch.isfinite(exact), exact, plain)
