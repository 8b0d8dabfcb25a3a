"""Kernels of `_softmax`, `_log_softmax`, `_safe_softmax` and of the backwards of the first two.

A form returns a shift m and a sum s of exp(x - m); softmax is exp(x - m) / s and log_softmax (x - m) - log(s).
bfloat16 and float16 inputs are computed in float32 and rounded once, as in ATen; the `bf16` kernels round each
operation to bfloat16 instead."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from .precision import Sum, above_infinity, blocks, computing, largest_of, plain_sum, reversed_sum, wide

Tensor = torch.Tensor

BLOCK = 64
"""The number of elements that the online form processes together."""

Form = Callable[[Tensor, int], tuple[Tensor, Tensor]]


def without_max(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Use m = 0."""
    total = torch.exp(x).sum(dim, keepdim=True)
    return torch.zeros_like(total), total


def with_max(x: Tensor, dim: int, total: Sum = plain_sum) -> tuple[Tensor, Tensor]:
    """Use m = max(x)."""
    largest = largest_of(x, dim)
    return largest, total(torch.exp(x - largest), [dim], True)


def online(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Make one pass over blocks of `BLOCK` elements: m is the maximum so far, and s is rescaled whenever m grows."""
    first, *rest = blocks(x, BLOCK, dim)
    # If all of the first block were -inf, subtracting its maximum would compute -inf - -inf, which is NaN.
    largest = above_infinity(largest_of(first, dim))
    total = torch.exp(first - largest).sum(dim, keepdim=True)
    for block in rest:
        larger = torch.maximum(largest, largest_of(block, dim))
        total = total * torch.exp(largest - larger) + torch.exp(block - larger).sum(dim, keepdim=True)
        largest = larger
    return largest, total


def _softmax(
    form: Form, dtype: torch.dtype | None, self: Tensor, dim: int, half_to_float: bool = False, *, logarithm: bool
) -> Tensor:
    """Compute softmax or its logarithm with one form.

    Each operation rounds to `dtype`; None means the dtype in which ATen computes.
    """
    result_dtype = torch.float32 if half_to_float else self.dtype
    if self.numel() == 0:  # an empty tensor has no maximum
        return torch.empty_like(self, dtype=result_dtype)
    x = self.to(dtype or computing(self.dtype))
    shift, total = form(x, dim)
    return ((x - shift) - torch.log(total) if logarithm else torch.exp(x - shift) / total).to(result_dtype)


def _safe_softmax(
    form: Form, rounded: torch.dtype | None, self: Tensor, dim: int, dtype: torch.dtype | None = None
) -> Tensor:
    x = self.to(dtype or self.dtype)
    if x.numel() == 0:
        return torch.empty_like(x)
    # This makes the softmax safe: a row of only -inf becomes 0, where plain softmax returns NaN.
    nothing = (x == -torch.inf).all(dim, keepdim=True)
    return torch.where(nothing, 0.0, _softmax(form, rounded, x, dim, logarithm=False))


def log_softmax_of_softmax(self: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    probability = _softmax(with_max, None, wide(self), dim, logarithm=False)
    return torch.log(probability).to(torch.float32 if half_to_float else self.dtype)


_reversed_order = partial(with_max, total=reversed_sum)

softmax_without_max = partial(_softmax, without_max, None, logarithm=False)
softmax_online = partial(_softmax, online, None, logarithm=False)
softmax_reversed = partial(_softmax, _reversed_order, None, logarithm=False)
softmax_bf16 = partial(_softmax, with_max, torch.bfloat16, logarithm=False)

log_softmax_without_max = partial(_softmax, without_max, None, logarithm=True)
log_softmax_online = partial(_softmax, online, None, logarithm=True)
log_softmax_reversed = partial(_softmax, _reversed_order, None, logarithm=True)
log_softmax_bf16 = partial(_softmax, with_max, torch.bfloat16, logarithm=True)

safe_softmax_without_max = partial(_safe_softmax, without_max, None)
safe_softmax_online = partial(_safe_softmax, online, None)
safe_softmax_reversed = partial(_safe_softmax, _reversed_order, None)
safe_softmax_bf16 = partial(_safe_softmax, with_max, torch.bfloat16)


# The backwards, from the output y: g*y - y * sum(g*y) for softmax, and g - exp(y) * sum(g) for its logarithm.

Gradient = Callable[[Tensor, Tensor, int], Tensor]


def _factored(g: Tensor, y: Tensor, dim: int) -> Tensor:
    return y * (g - (g * y).sum(dim, keepdim=True))


def _by_products(g: Tensor, y: Tensor, dim: int, total: Sum = plain_sum) -> Tensor:
    product = g * y
    return product - y * total(product, [dim], True)


def _of_logarithm(g: Tensor, y: Tensor, dim: int, total: Sum = plain_sum) -> Tensor:
    return g - torch.exp(y) * total(g, [dim], True)


def _renormalized(g: Tensor, y: Tensor, dim: int) -> Tensor:
    probability = torch.exp(y)
    normalized = probability / probability.sum(dim, keepdim=True)
    return g - normalized * g.sum(dim, keepdim=True)


def _backward(
    gradient: Gradient,
    dtype: torch.dtype | None,
    grad_output: Tensor,
    output: Tensor,
    dim: int,
    input_dtype: torch.dtype,
) -> Tensor:
    g, y = (tensor.to(dtype or computing(tensor.dtype)) for tensor in (grad_output, output))
    return gradient(g, y, dim).to(input_dtype)


softmax_backward_factored = partial(_backward, _factored, None)
softmax_backward_reversed = partial(_backward, partial(_by_products, total=reversed_sum), None)
softmax_backward_bf16 = partial(_backward, _by_products, torch.bfloat16)

log_softmax_backward_renormalized = partial(_backward, _renormalized, None)
log_softmax_backward_reversed = partial(_backward, partial(_of_logarithm, total=reversed_sum), None)
log_softmax_backward_bf16 = partial(_backward, _of_logarithm, torch.bfloat16)
