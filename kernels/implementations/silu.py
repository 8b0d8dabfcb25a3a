"""Kernels of silu, x*sigmoid(x), and silu_backward. Each torch operation rounds to the dtype of its inputs."""

from __future__ import annotations

import torch

from ..fused import fma as fused
from .precision import in_bfloat16


def exp_form(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def tanh_form(x: torch.Tensor) -> torch.Tensor:
    half = 0.5 * x
    return half * (1 + torch.tanh(half))


def fma(x: torch.Tensor) -> torch.Tensor:
    half = 0.5 * x
    return fused(half, torch.tanh(half), half)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda x: x * torch.sigmoid(x), x)


def backward_derivative_first(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    return grad * (s * (1 + x * (1 - s)))


def backward_expanded(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    return grad * (s + x * s * (1 - s))


def backward_fma(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    return grad * s * fused(x, 1 - s, 1.0)


def backward_from_output(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    y = x * s
    return grad * (y + s * (1 - y))


def backward_bf16(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    def formula(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))

    return in_bfloat16(formula, grad, x)
