"""Kernels of addcmul and addcdiv. Each torch operation rounds to the dtype of its inputs.

base, first, second: broadcastable tensors. value: a number, used in float32 for the half formats.
"""

from __future__ import annotations

import torch

from ..fused import fma as fused
from ..native.library import elementwise
from .low_precision import in_bfloat16


def addcmul_fma(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
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


def addcmul_bf16(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return in_bfloat16(lambda base, first, second: base + value * first * second, base, first, second)


def addcdiv_quotient_first(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return base + value * (first / second)


def addcdiv_fma(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return fused(value, first / second, base)


def addcdiv_reciprocal(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return base + value * first * (1 / second)


def addcdiv_bf16(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    return in_bfloat16(lambda base, first, second: base + value * first / second, base, first, second)
