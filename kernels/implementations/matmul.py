"""Kernels of `mm`, `bmm` and `addmm`: the order of accumulation, and the precision of the inputs.

bfloat16 and float16 inputs are multiplied and accumulated in float32 and rounded once at the end, as in ATen.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from numdrift.harness.errors import NotAvailable

from .precision import wide

aten = torch.ops.aten
Tensor = torch.Tensor
Product = Callable[[Tensor, Tensor], Tensor]

PARTS = 4
"""Parts of the split inner dimension."""

LONGEST_SEQUENCE = 4096
"""Rank-one updates after which the sequential form stops to be usable: each is a pass over the result."""

_HUGE, _DOWN = 2.0**100, 2.0**-24
"""Where multiplying by 2^13 + 1 could overflow, and the power of two that brings such numbers down."""


def split_k(a: Tensor, b: Tensor) -> Tensor:
    """Add the products of `PARTS` parts of the inner dimension, first to last.

    The parts are those of `torch.tensor_split`: as equal as can be, longer ones first.
    """
    parts = min(PARTS, max(1, a.shape[-1]))
    pairs = zip(a.tensor_split(parts, -1), b.tensor_split(parts, -2), strict=True)
    total, *rest = (_plain(left, right) for left, right in pairs)
    for part in rest:
        total = total + part
    return total


def reversed_k(a: Tensor, b: Tensor) -> Tensor:
    """Multiply with the inner dimension from last to first."""
    return _plain(a.flip(-1), b.flip(-2))


def sequential(a: Tensor, b: Tensor) -> Tensor:
    """Add the rank-one updates k = 0, 1, ... one by one; multiplication and addition round separately.

    Raises NotAvailable above `LONGEST_SEQUENCE` updates.
    """
    inner = a.shape[-1]
    if inner > LONGEST_SEQUENCE:
        raise NotAvailable(
            "kernel sequential of a matrix product",
            f"an inner dimension of {inner} is above {LONGEST_SEQUENCE}",
            "choose split_k or reversed_k, or name the modules with op@module",
        )
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    for k in range(inner):
        total = total + a[..., k : k + 1] * b[..., k : k + 1, :]
    return total


def decomposed(a: Tensor, b: Tensor) -> Tensor:
    """Round every product, then sum them in ATen's order; needs memory for all products."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def with_bf16_inputs(a: Tensor, b: Tensor) -> Tensor:
    """Round the inputs to bfloat16, accumulate in float32."""
    return _plain(*(one.to(torch.bfloat16).to(torch.float32) for one in (a, b)))


def with_tf32_inputs(a: Tensor, b: Tensor) -> Tensor:
    """Round the inputs to 11 significant bits (those of TF32), accumulate in float32."""
    return _plain(*(rounded_to_tf32(one.to(torch.float32)) for one in (a, b)))


def rounded_to_tf32(x: Tensor) -> Tensor:
    """Round float32 numbers to 11 significant bits, to nearest, by Veltkamp's splitting.

    c = (2^13 + 1) * x; the result is c - (c - x). Infinities and NaN stay what they are, subnormals keep all
    bits that the splitting leaves them. Source: T. Dekker, A Floating-Point Technique for Extending the
    Available Precision, Numerische Mathematik 18, 1971."""
    scaled = torch.where(x.abs() > _HUGE, x * _DOWN, x)
    c = scaled * (2.0**13 + 1)
    near = c - (c - scaled)
    near = torch.where(x.abs() > _HUGE, near / _DOWN, near)
    return torch.where(torch.isfinite(x), near, x)


def _plain(a: Tensor, b: Tensor) -> Tensor:
    product: Tensor = aten.bmm(a, b) if a.dim() == 3 else aten.mm(a, b)
    return product


def mm_split_k(self: Tensor, mat2: Tensor) -> Tensor:
    return _product(split_k, self, mat2)


def mm_reversed_k(self: Tensor, mat2: Tensor) -> Tensor:
    return _product(reversed_k, self, mat2)


def mm_sequential(self: Tensor, mat2: Tensor) -> Tensor:
    return _product(sequential, self, mat2)


def mm_decomposed(self: Tensor, mat2: Tensor) -> Tensor:
    return _product(decomposed, self, mat2)


def mm_bf16(self: Tensor, mat2: Tensor) -> Tensor:
    return _product(with_bf16_inputs, self, mat2)


def mm_tf32(self: Tensor, mat2: Tensor) -> Tensor:
    return _product(with_tf32_inputs, self, mat2)


def addmm_split_k(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _addmm(split_k, self, mat1, mat2, beta, alpha)


def addmm_reversed_k(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _addmm(reversed_k, self, mat1, mat2, beta, alpha)


def addmm_sequential(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _addmm(sequential, self, mat1, mat2, beta, alpha)


def addmm_bf16(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _addmm(with_bf16_inputs, self, mat1, mat2, beta, alpha)


def addmm_tf32(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return _addmm(with_tf32_inputs, self, mat1, mat2, beta, alpha)


def _product(product: Product, a: Tensor, b: Tensor) -> Tensor:
    return product(wide(a), wide(b)).to(a.dtype)


def _addmm(product: Product, self: Tensor, a: Tensor, b: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * self + alpha * product; factors of 1 are left out, and with beta = 0 `self` is not looked at."""
    result = product(wide(a), wide(b))
    if alpha != 1:
        result = result * alpha
    if beta == 0:
        return result.to(a.dtype)
    added = wide(self) if beta == 1 else wide(self) * beta
    return (added + result).to(a.dtype)
