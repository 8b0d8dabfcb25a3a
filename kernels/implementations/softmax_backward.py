"""Kernels of `_softmax_backward_data` and `_log_softmax_backward_data`.

bfloat16 and float16 inputs are computed in float32 and rounded once, as in ATen; the `bf16` kernels round each
operation to bfloat16 instead.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from .precision import computing, plain_sum, reversed_sum

Sum = Callable[[torch.Tensor, list[int], bool], torch.Tensor]


def softmax_factored(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    g, y = _wide(grad_output, output)
    return (y * (g - (g * y).sum(dim, keepdim=True))).to(input_dtype)


def softmax_reversed(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    return _softmax(*_wide(grad_output, output), dim, reversed_sum).to(input_dtype)


def softmax_bf16(grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype) -> torch.Tensor:
    g, y = grad_output.to(torch.bfloat16), output.to(torch.bfloat16)
    return _softmax(g, y, dim, plain_sum).to(input_dtype)


def log_softmax_reversed(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    return _log_softmax(*_wide(grad_output, output), dim, reversed_sum).to(input_dtype)


def log_softmax_renormalized(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    g, y = _wide(grad_output, output)
    probability = torch.exp(y)
    normalized = probability / probability.sum(dim, keepdim=True)
    return (g - normalized * g.sum(dim, keepdim=True)).to(input_dtype)


def log_softmax_bf16(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    g, y = grad_output.to(torch.bfloat16), output.to(torch.bfloat16)
    return _log_softmax(g, y, dim, plain_sum).to(input_dtype)


def _softmax(g: torch.Tensor, y: torch.Tensor, dim: int, total: Sum) -> torch.Tensor:
    product = g * y
    return product - y * total(product, [dim], True)


def _log_softmax(g: torch.Tensor, y: torch.Tensor, dim: int, total: Sum) -> torch.Tensor:
    return g - torch.exp(y) * total(g, [dim], True)


def _wide(grad_output: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return grad_output.to(computing(grad_output.dtype)), output.to(computing(output.dtype))
