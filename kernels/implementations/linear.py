"""Kernels of `linear`. It is swapped above autograd: the kernels are made of differentiable operations.

Shapes: input [..., K], weight [N, K], bias [N]; the result [..., N]. Under autocast they compute in its dtype.
"""

from __future__ import annotations

from typing import Any

import torch

from .matmul import PARTS
from .precision import autocast, without_autocast

aten = torch.ops.aten
Tensor = torch.Tensor


def decomposed(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """t, mm and add as separate operations, the rows of a batch flattened."""
    x, w, b = _cast(input, weight, bias)
    with without_autocast(x.device.type):
        result = _with_bias(torch.mm(x.reshape(_rows(x), x.shape[-1]), w.t()), b)
        return result.reshape(*x.shape[:-1], w.shape[0])


def whole(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """One operation for autograd: linear itself forward, the textbook's three products backward."""
    x, w, b = _cast(input, weight, bias)
    with without_autocast(x.device.type):
        result: Tensor = WholeLinear.apply(x, w, b)  # type: ignore[no-untyped-call]
    return result


def split_k(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Add the products of `PARTS` parts of the inner dimension, then the bias."""
    x, w, b = _cast(input, weight, bias)
    parts = min(PARTS, max(1, x.shape[-1]))
    pairs = zip(x.tensor_split(parts, -1), w.tensor_split(parts, 1), strict=True)
    with without_autocast(x.device.type):
        result, *rest = (torch.matmul(left, right.t()) for left, right in pairs)
        for part in rest:
            result = result + part
        return _with_bias(result, b)


def fp64(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute in float64 and round once; so do the gradients."""
    return _in(torch.float64, input, weight, bias)


def bf16(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute in bfloat16; so do the gradients."""
    return _in(torch.bfloat16, input, weight, bias)


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


def _in(dtype: torch.dtype, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    x, w, b = _cast(input, weight, bias)
    with without_autocast(x.device.type):
        result: Tensor = aten.linear(x.to(dtype), w.to(dtype), None if b is None else b.to(dtype))
    return result.to(x.dtype)


def _cast(input: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    x, w, b = autocast(input, weight, bias)
    assert x is not None and w is not None
    return x, w, b


def _with_bias(result: Tensor, bias: Tensor | None) -> Tensor:
    return result if bias is None else result + bias


def _rows(x: Tensor) -> int:
    """How many vectors a batch holds."""
    return x.shape[:-1].numel()
