"""Kernels of lerp, which is start + weight*(end - start), and of addcmul and addcdiv.

Each torch operation rounds to the dtype of its inputs.

start, end: broadcastable tensors. weight: a tensor or a number; for the half formats, a number is used in float32.
"""

from __future__ import annotations

import struct

import torch

from ..fused import fma as fused
from ..native.library import elementwise
from .precision import in_bfloat16


def fma(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    # `elementwise` takes tensors of one dtype, so it returns None for the half formats, whose weight is float32.
    inside = torch.promote_types(start.dtype, torch.float32)
    factor = weight if isinstance(weight, torch.Tensor) else torch.full((), weight, dtype=inside, device=start.device)
    in_c = elementwise("lerp_fma", (start, end, factor))
    return fused(weight, end - start, start) if in_c is None else in_c


def one_sided(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    return start + weight * (end - start)


def two_products(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    return (1 - weight) * start + weight * end


def fma_two_sided(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """Compute ATen's formula, which starts from the nearer of `start` and `end`."""
    if isinstance(weight, torch.Tensor):
        near_end = weight.abs() >= 0.5
        coefficient = torch.where(near_end, weight - 1, weight)
        return fused(coefficient, end - start, torch.where(near_end, end, start))
    # weight - 1 is computed from the number as the op uses it: rounded to float32 unless the tensors are float64.
    number = weight if start.dtype == torch.float64 else float(struct.unpack("f", struct.pack("f", weight))[0])
    return fused(number - 1, end - start, end) if abs(number) >= 0.5 else fused(number, end - start, start)


def bf16(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    return in_bfloat16(one_sided, start, end, weight)


# Kernels of addcmul and addcdiv. Each torch operation rounds to the dtype of its inputs.
#
# base, first, second: broadcastable tensors. value: a number, used in float32 for the half formats.


def addcmul_fma(base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    in_c = elementwise("addcmul_fma", (base, first, second), (value,))
    return fused(value * first, second, base) if in_c is None else in_c


def addcmul_product_first(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return base + value * (first * second)


def addcmul_fma_product_first(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return fused(value, first * second, base)


def addcmul_bf16(base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return in_bfloat16(lambda base, first, second: base + value * first * second, base, first, second)


def addcdiv_quotient_first(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return base + value * (first / second)


def addcdiv_fma(base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return fused(value, first / second, base)


def addcdiv_reciprocal(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return base + value * first * (1 / second)


def addcdiv_bf16(base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    return in_bfloat16(lambda base, first, second: base + value * first / second, base, first, second)
