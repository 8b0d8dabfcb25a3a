"""Activations and their backwards in float64, free of cancellation.

Tensors are float64 and broadcast. The relative error stays below 1e-14, zeros of the derivatives included, or
the absolute error below the smallest subnormal of float32. Infinities give what the op's definition gives: nan
where it has infinity times zero.
"""

from __future__ import annotations

import torch

_SILU_ZERO = (-1.2784645427610737, -1.0946994183093437e-16)
"""Where the derivative of silu is zero: exp(x) + x + 1 = 0. High and low part."""


def tanh(x: torch.Tensor) -> torch.Tensor:
    m = torch.expm1(-2 * x.abs())
    return torch.copysign(-m / (m + 2), x)


def tanh_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """grad*(1 - y*y), where 1 - y and 1 + y do not cancel more than y itself says."""
    return grad * ((1 - y) * (1 + y))


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-x.abs())
    return torch.where(x < 0, e, torch.ones_like(e)) / (1 + e)


def sigmoid_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (y * (1 - y))


def silu(x: torch.Tensor) -> torch.Tensor:
    return x * sigmoid(x)


def silu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """grad*s*(1 + x*(1 - s)) with s = sigmoid(x).

    Left of 0 the derivative is exp(x)*h/(1 + exp(x))**2 with h = exp(x) + x + 1, and with the zero r of h and
    d = x - r, h = d + exp(r)*expm1(d), whose terms have one sign.
    """
    e = torch.exp(-x.abs())
    s = sigmoid(x)
    offset = (x - _SILU_ZERO[0]) - _SILU_ZERO[1]
    left = e * (offset - (1 + _SILU_ZERO[0]) * torch.expm1(offset)) / (1 + e) ** 2
    right = s * (1 + x * (e * s))
    return grad * torch.where(x < 0, left, right)
