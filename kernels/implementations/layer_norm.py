"""Kernels of `native_layer_norm` and `native_layer_norm_backward`.

Each forward kernel computes the moments of each row in its own way, and returns ((x - mean) * rstd) * weight + bias.
With xhat = (x - mean) * rstd and gy = grad * weight, the gradient of the input is
rstd * (gy - mean(gy) - xhat * mean(gy * xhat)).
bfloat16 and float16 are computed in float32 and rounded once, as in ATen; `bf16` rounds each operation to bfloat16
instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from . import moments
from .device_statistics import gradient_dtype, statistics_dtype
from .precision import Gradients, Normalized, Sum, computing, plain_sum, reversed_sum

Tensor = torch.Tensor


def _layer_norm(
    moments_of: moments.Moments,
    dtype: torch.dtype | None,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> Normalized:
    """Normalize the input [*outer, *normalized_shape]; return the result and the two statistics [*outer, 1, ...].

    The statistics have the dtype that ATen uses for them. Each operation rounds to `dtype`; None means the dtype in
    which ATen computes."""
    dtype = dtype or computing(input.dtype)
    outer = input.shape[: input.dim() - len(normalized_shape)]
    rows = input.to(dtype).reshape(math.prod(outer), math.prod(normalized_shape))
    mean, variance = moments_of(rows)  # [rows, 1] each
    rstd = 1 / torch.sqrt(variance + eps)
    y = ((rows - mean) * rstd).reshape(input.shape)
    if weight is not None:
        y = y * weight.to(dtype)
    if bias is not None:
        y = y + bias.to(dtype)
    statistics = (*outer, *(1 for _ in normalized_shape))
    saved_dtype = statistics_dtype(input, weight, bias)
    return y.to(input.dtype), mean.reshape(statistics).to(saved_dtype), rstd.reshape(statistics).to(saved_dtype)


two_pass = partial(_layer_norm, moments.two_pass, None)
reversed_order = partial(_layer_norm, moments.reversed_order, None)
one_pass = partial(_layer_norm, moments.one_pass, None)
shifted = partial(_layer_norm, moments.shifted, None)
welford = partial(_layer_norm, moments.welford, None)
bf16 = partial(_layer_norm, moments.two_pass, torch.bfloat16)


InputGradient = Callable[[Tensor, Tensor, Tensor, Tensor, list[int], Sum], Tensor]


@dataclass(frozen=True, slots=True)
class LayerNormBackward:
    """The gradients of layer norm, with one formula for the input's gradient and one order of summation.

    Each operation rounds to `dtype`; None means the dtype in which ATen computes.
    """

    of_input: InputGradient
    total: Sum = plain_sum
    dtype: torch.dtype | None = None

    def __call__(
        self,
        grad_out: Tensor,
        input: Tensor,
        normalized_shape: Sequence[int],
        mean: Tensor,
        rstd: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        output_mask: Sequence[bool],
    ) -> Gradients:
        """Return the three gradients. A gradient is None if `output_mask` excludes it or its parameter is None."""
        dtype = self.dtype or computing(input.dtype)
        g, x, m, r = (tensor.to(dtype) for tensor in (grad_out, input, mean, rstd))
        axis = x.dim() - len(normalized_shape)
        inner, outer = list(range(axis, x.dim())), list(range(axis))
        parameter_dtype = gradient_dtype(input, weight, bias)
        of_input = of_weight = of_bias = None
        if output_mask[0]:
            gy = g if weight is None else g * weight.to(dtype)
            of_input = self.of_input(gy, x, m, r, inner, self.total).to(input.dtype)
        if output_mask[1] and weight is not None:
            of_weight = self.total(g * ((x - m) * r), outer, False).to(parameter_dtype)
        if output_mask[2] and bias is not None:
            # Without outer dimensions, the sum is grad_out itself; an op must not return one of its arguments.
            of_bias = self.total(g, outer, False).to(parameter_dtype, copy=True)
        return of_input, of_weight, of_bias


def _by_centering(gy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, inner: list[int], total: Sum) -> Tensor:
    n = math.prod(x.shape[dim] for dim in inner)
    xhat = (x - mean) * rstd
    mean_of_gradient = total(gy, inner, True) / n
    mean_of_projection = total(gy * xhat, inner, True) / n
    return (gy - mean_of_gradient - xhat * mean_of_projection) * rstd


def _by_a_line(gy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, inner: list[int], total: Sum) -> Tensor:
    """Compute rstd*gy + slope*x + offset: ATen's form, whose last two terms cancel if the mean is large."""
    n = math.prod(x.shape[dim] for dim in inner)
    scale = 1 / n if n else math.nan
    ds, db = total(gy * x, inner, True), total(gy, inner, True)
    slope = (db * mean - ds) * rstd * rstd * rstd * scale
    offset = -slope * mean - db * rstd * scale
    return rstd * gy + slope * x + offset


backward_centered = LayerNormBackward(_by_centering)
backward_linear_form = LayerNormBackward(_by_a_line)
backward_reversed_order = LayerNormBackward(_by_centering, reversed_sum)
backward_bf16 = LayerNormBackward(_by_centering, dtype=torch.bfloat16)
