"""Kernels of `mm`, `bmm`, `addmm` and `linear`, which differ in order of accumulation or in precision.

bfloat16 and float16 inputs are multiplied and accumulated in float32 and rounded once at the end, as in ATen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from numdrift.harness.errors import NotAvailable

from .precision import autocast, wide, without_autocast

aten = torch.ops.aten
Tensor = torch.Tensor
Product = Callable[[Tensor, Tensor], Tensor]

PARTS = 4
"""The number of parts into which `split_k` splits the inner dimension."""

LONGEST_SEQUENCE = 4096
"""The largest number of rank-one updates in the sequential form: each is a pass over the result, so more would be too
slow."""

_HUGE, _DOWN = 2.0**100, 2.0**-24
"""The bound above which multiplying by 2^13 + 1 could overflow, and the power of two that scales such numbers down."""


def split_k(a: Tensor, b: Tensor) -> Tensor:
    """Add the products of `PARTS` parts of the inner dimension, first to last.

    The parts are those of `torch.tensor_split`: as equal as possible, longer ones first.
    """
    parts = min(PARTS, max(1, a.shape[-1]))
    pairs = zip(a.tensor_split(parts, -1), b.tensor_split(parts, -2), strict=True)
    total, *rest = (_plain(left, right) for left, right in pairs)
    for part in rest:
        total = total + part
    return total


def reversed_k(a: Tensor, b: Tensor) -> Tensor:
    """Multiply, with the inner dimension summed from last to first."""
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
            "choose split_k or reversed_k, or limit the swap to other modules with OP@MODULE",
        )
    total = torch.zeros((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    for k in range(inner):
        total = total + a[..., k : k + 1] * b[..., k : k + 1, :]
    return total


def decomposed(a: Tensor, b: Tensor) -> Tensor:
    """Round every product, then sum them in ATen's order; needs memory for all products."""
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def with_bf16_inputs(a: Tensor, b: Tensor) -> Tensor:
    """Round the inputs to bfloat16, and accumulate in float32."""
    return _plain(*(factor.to(torch.bfloat16).to(torch.float32) for factor in (a, b)))


def with_tf32_inputs(a: Tensor, b: Tensor) -> Tensor:
    """Round the inputs to 11 significant bits (as TF32 has), and accumulate in float32."""
    return _plain(*(rounded_to_tf32(factor.to(torch.float32)) for factor in (a, b)))


def rounded_to_tf32(x: Tensor) -> Tensor:
    """Round float32 numbers to 11 significant bits, to nearest, by Veltkamp's splitting.

    c = (2^13 + 1) * x; the result is c - (c - x). Infinities and NaN stay unchanged. Subnormals keep 11 significant
    bits as well, more than TF32 has for them. Source: T. Dekker, A Floating-Point Technique for Extending the Available
    Precision, Numerische Mathematik 18, 1971."""
    # A power of two changes only the exponent: scaling down and up again keeps the digits.
    scaled = torch.where(x.abs() > _HUGE, x * _DOWN, x)
    c = scaled * (2.0**13 + 1)
    near = c - (c - scaled)
    near = torch.where(x.abs() > _HUGE, near / _DOWN, near)
    return torch.where(torch.isfinite(x), near, x)


def _plain(a: Tensor, b: Tensor) -> Tensor:
    product: Tensor = aten.bmm(a, b) if a.dim() == 3 else aten.mm(a, b)
    return product


def _product(order: Product, self: Tensor, mat2: Tensor) -> Tensor:
    return order(wide(self), wide(mat2)).to(self.dtype)


def _addmm(order: Product, self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """Compute beta * self + alpha * product; factors of 1 are left out, and with beta = 0 `self` is ignored."""
    result = order(wide(mat1), wide(mat2))
    if alpha != 1:
        result = result * alpha
    if beta == 0:  # as in BLAS: the values of `self` are ignored, including NaN
        return result.to(mat1.dtype)
    added = wide(self) if beta == 1 else wide(self) * beta
    return (added + result).to(mat1.dtype)


mm_split_k, addmm_split_k = partial(_product, split_k), partial(_addmm, split_k)
mm_reversed_k, addmm_reversed_k = partial(_product, reversed_k), partial(_addmm, reversed_k)
mm_sequential, addmm_sequential = partial(_product, sequential), partial(_addmm, sequential)
mm_bf16, addmm_bf16 = partial(_product, with_bf16_inputs), partial(_addmm, with_bf16_inputs)
mm_tf32, addmm_tf32 = partial(_product, with_tf32_inputs), partial(_addmm, with_tf32_inputs)
mm_decomposed = partial(_product, decomposed)


# linear is swapped above autograd, so its kernels consist of differentiable operations. Under autocast, they compute in
# the dtype of autocast. Shapes: input [..., K], weight [N, K], bias [N] and the result [..., N].


def linear_decomposed(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute t, mm and add as separate operations, with the rows of a batch flattened."""
    x, w, b = _cast(input, weight, bias)
    with without_autocast(x.device.type):
        result = torch.mm(x.reshape(_rows(x), x.shape[-1]), w.t())
        result = result if b is None else result + b
        return result.reshape(*x.shape[:-1], w.shape[0])


def linear_whole(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute linear as one operation for autograd, with the textbook gradients in the backward."""
    x, w, b = _cast(input, weight, bias)
    with without_autocast(x.device.type):
        result: Tensor = WholeLinear.apply(x, w, b)  # type: ignore[no-untyped-call]
    return result


def linear_split_k(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Add the products of `PARTS` parts of the inner dimension, then the bias."""
    x, w, b = _cast(input, weight, bias)
    parts = min(PARTS, max(1, x.shape[-1]))
    pairs = zip(x.tensor_split(parts, -1), w.tensor_split(parts, 1), strict=True)
    with without_autocast(x.device.type):
        result, *rest = (torch.matmul(left, right.t()) for left, right in pairs)
        for part in rest:
            result = result + part
        return result if b is None else result + b


def _computed_in(dtype: torch.dtype, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute in `dtype` and round once. The same holds for the gradients, since autograd differentiates the casts."""
    x, w, b = _cast(input, weight, bias)
    with without_autocast(x.device.type):
        result: Tensor = aten.linear(x.to(dtype), w.to(dtype), None if b is None else b.to(dtype))
    return result.to(x.dtype)


linear_fp64 = partial(_computed_in, torch.float64)
linear_bf16 = partial(_computed_in, torch.bfloat16)


class WholeLinear(torch.autograd.Function):
    """linear as one node: grad_input = g @ W, grad_weight = g^T @ x, grad_bias = sum(g) over the rows."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(input, weight)
        result: Tensor = aten.linear(input, weight, bias)
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        (gradient,) = gradients
        rows = gradient.reshape(_rows(gradient), weight.shape[0])
        of_input = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_input = (rows @ weight).reshape(input.shape)
        if ctx.needs_input_grad[1]:
            of_weight = rows.t() @ input.reshape(_rows(input), input.shape[-1])
        if ctx.needs_input_grad[2]:
            of_bias = rows.sum(0)
        return of_input, of_weight, of_bias


def _cast(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    x, w, b = autocast(input, weight, bias)
    assert x is not None and w is not None
    return x, w, b


def _rows(x: Tensor) -> int:
    """Return the number of vectors in a batch."""
    return x.shape[:-1].numel()
