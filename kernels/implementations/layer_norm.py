"""Kernels of `native_layer_norm`: the moments of each row in several ways, then ((x - mean) * rstd) * weight
+ bias.

bfloat16 and float16 inputs are computed in float32 and rounded once, as in ATen; `bf16` rounds each operation
to bfloat16 instead."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from . import moments
from .precision import computing, statistics_dtype, wide_or_none

Tensor = torch.Tensor
Normalized = tuple[Tensor, Tensor, Tensor]


def two_pass(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    return _layer_norm(moments.two_pass, input, normalized_shape, weight, bias, eps)


def reversed_order(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    return _layer_norm(moments.reversed_order, input, normalized_shape, weight, bias, eps)


def one_pass(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    return _layer_norm(moments.one_pass, input, normalized_shape, weight, bias, eps)


def shifted(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    return _layer_norm(moments.shifted, input, normalized_shape, weight, bias, eps)


def welford(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    return _layer_norm(moments.welford, input, normalized_shape, weight, bias, eps)


def bf16(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Normalized:
    return _layer_norm(moments.two_pass, input, normalized_shape, weight, bias, eps, torch.bfloat16)


def _layer_norm(
    moments_of: moments.Moments,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    dtype: torch.dtype | None = None,
) -> Normalized:
    """Shapes: x [*outer, *normalized_shape]; the statistics [*outer, 1, ...], in the dtype that ATen gives
    them."""
    dtype = dtype or computing(x.dtype)
    outer = x.shape[: x.dim() - len(normalized_shape)]
    rows = x.to(dtype).reshape(math.prod(outer), math.prod(normalized_shape))
    mean, variance = moments_of(rows)
    rstd = 1 / torch.sqrt(variance + eps)
    y = ((rows - mean) * rstd).reshape(x.shape)
    weight_wide, bias_wide = wide_or_none(weight, dtype), wide_or_none(bias, dtype)
    if weight_wide is not None:
        y = y * weight_wide
    if bias_wide is not None:
        y = y + bias_wide
    statistics = (*outer, *(1 for _ in normalized_shape))
    kept = statistics_dtype(x, weight, bias)
    return y.to(x.dtype), mean.reshape(statistics).to(kept), rstd.reshape(statistics).to(kept)
