"""Kernels of sigmoid and sigmoid_backward. Each torch operation rounds to the dtype of its inputs."""

from __future__ import annotations

import torch

from ..fused import fma
from ..native.library import elementwise
from .precision import in_bfloat16


def tanh_form(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1 + torch.tanh(0.5 * x))


def two_sided(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-x.abs())
    return torch.where(x < 0, e, torch.ones_like(e)) / (1 + e)


def softplus_form(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-(torch.log1p(torch.exp(-x.abs())) + (-x).clamp(min=0)))


def bf16(x: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda x: 1 / (1 + torch.exp(-x)), x)


def backward_left_to_right(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (1 - y) * y


def backward_unfused(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (y - y * y)


def backward_fma(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("sigmoid_backward_fma", (grad, y))
    return grad * fma(-y, y, y) if in_c is None else in_c


def backward_mac(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    product = grad * y
    return fma(-product, y, product)


def backward_bf16(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda g, y: g * (y * (1 - y)), grad, y)
