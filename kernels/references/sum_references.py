"""Sums, products and attention in higher precision: the references with which kernels are compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..fused import two_product, two_sum
from ..implementations.sums import reduced_dims, reduced_shape, rows_of

# Attention in float64 by the formula, because the blockwise kernel returns 0 for some rows whose scores are NaN.

aten = torch.ops.aten
Tensor = torch.Tensor


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale * query @ key.T + attn_mask) @ value, [..., L, Ev] from query [..., L, E], key [..., S, E]."""
    result: Tensor = aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result


# Matrix products whose sums are as accurate as if computed with twice the digits of float64. Products of float32 or
# narrower numbers are exact in float64; their sum is compensated.

CHUNK = 1 << 22
"""The maximum number of products in memory at the same time."""


def mm(self: Tensor, mat2: Tensor) -> Tensor:
    """[M, K] @ [K, N] in float64."""
    inner, columns = mat2.shape
    if inner == 0 or columns == 0 or self.shape[0] == 0:
        return self @ mat2
    rows = max(1, CHUNK // (inner * columns))
    right = mat2.t().unsqueeze(0)
    parts = [
        compensated((part.unsqueeze(1) * right).reshape(-1, inner)).reshape(-1, columns) for part in self.split(rows)
    ]
    return torch.cat(parts)


def bmm(self: Tensor, mat2: Tensor) -> Tensor:
    """[B, M, K] @ [B, K, N] in float64."""
    if self.shape[0] == 0:
        return self @ mat2
    return torch.stack([mm(left, right) for left, right in zip(self, mat2, strict=True)])


def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * self + alpha * (mat1 @ mat2) in float64."""
    product = alpha * mm(mat1, mat2)
    return product if beta == 0 else beta * self + product


# Sums as accurate as if computed with twice the digits of float64.
#
# Each addition's rounding error is computed exactly (TwoSum), and the errors are summed as well. Source: T. Ogita,
# S. Rump, S. Oishi, Accurate Sum and Dot Product, SIAM J. Sci. Comput. 26(6), 2005, algorithm 4.4, over a tree of
# additions.


def sum(
    self: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the sum of float64 numbers, correctly rounded unless 30 digits or more cancel."""
    dims = reduced_dims(self, dim)
    return compensated(rows_of(self, dims)).reshape(reduced_shape(self, dims, keepdim))


def mean(
    self: Tensor,
    dim: Sequence[int] | int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the sum divided by the number of elements."""
    dims = reduced_dims(self, dim)
    rows = rows_of(self, dims)
    return (compensated(rows) / rows.shape[1]).reshape(reduced_shape(self, dims, keepdim))


def compensated(rows: Tensor) -> Tensor:
    """Return the sum of each row of a matrix [rows, n]. A row with an infinity or NaN is summed by torch."""
    high, low = rows, torch.zeros_like(rows)
    while high.shape[1] > 1:
        if high.shape[1] % 2:
            high, low = (torch.nn.functional.pad(part, (0, 1)) for part in (high, low))
        a, b = high[:, 0::2], high[:, 1::2]
        total = a + b
        virtual = total - a
        error = (a - (total - virtual)) + (b - virtual)
        high, low = total, low[:, 0::2] + low[:, 1::2] + error
    plain = rows.sum(1)
    exact = (high + low).sum(1)
    return torch.where(torch.isfinite(plain) & torch.isfinite(exact), exact, plain)


# Numbers of about 106 bits, as the unevaluated sum of two float64 tensors: a high part and its rounding error.
#
# Source: T. J. Dekker, A floating-point technique for extending the available precision, Numer. Math. 18, 1971. If a
# part overflows, the result becomes nan; `settled` replaces it with the plain float64 value.

Pair = tuple[torch.Tensor, torch.Tensor]


def pair(value: torch.Tensor) -> Pair:
    """Return a float64 tensor as a pair."""
    return value, torch.zeros_like(value)


def constant(high: float, low: float, like: torch.Tensor) -> Pair:
    """high + low as a pair without dimensions, on the device of `like`."""
    return like.new_full((), high), like.new_full((), low)


def plus(a: Pair, b: Pair) -> Pair:
    high, low = two_sum(a[0], b[0])
    return two_sum(high, low + (a[1] + b[1]))


def times(a: Pair, b: Pair) -> Pair:
    high, low = two_product(a[0], b[0])
    return two_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def over(a: Pair, b: Pair) -> Pair:
    high = a[0] / b[0]
    covered = times(pair(high), b)
    return two_sum(high, ((a[0] - covered[0]) - covered[1] + a[1]) / b[0])


def settled(value: Pair, plain: torch.Tensor) -> torch.Tensor:
    """Return the pair rounded to float64, or `plain` where the pair is not finite."""
    total = value[0] + value[1]
    return torch.where(torch.isfinite(total), total, plain)
