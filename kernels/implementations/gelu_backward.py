"""Kernels of gelu_backward: g*(Phi(x) + x*phi(x)) for approximate="none", and the derivative of the tanh form.

phi is the density of the standard normal distribution, Phi its integral; see `gelu` for the tanh form. Each
torch operation rounds to the dtype of its inputs.
"""

from __future__ import annotations

import math

import torch

from ..fused import fma as fused
from .gelu import BETA, KAPPA, ROOT_HALF, inner, is_tanh
from .precision import in_bfloat16

_PEAK = 1 / math.sqrt(2 * math.pi)


def erfc(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    if is_tanh(approximate):
        u = inner(x)
        s = torch.sigmoid(2 * u)
        return grad * (s + x * s * torch.sigmoid(-2 * u) * (2 * _inner_slope(x)))
    return grad * (0.5 * torch.erfc(-ROOT_HALF * x) + x * _density(x))


def fma(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    slope, value = _parts(x, approximate)
    return grad * fused(x, slope, value)


def distributed(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    slope, value = _parts(x, approximate)
    return grad * value + grad * x * slope


def tanh_form(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return _op_by_op(grad, x, "tanh")


def bf16(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return in_bfloat16(lambda grad, x: _op_by_op(grad, x, approximate), grad, x)


def _op_by_op(grad: torch.Tensor, x: torch.Tensor, approximate: str) -> torch.Tensor:
    slope, value = _parts(x, approximate)
    return grad * (value + x * slope)


def _parts(x: torch.Tensor, approximate: str) -> tuple[torch.Tensor, torch.Tensor]:
    """`slope` and `value` of the derivative, value + x*slope: phi and Phi, or those of the tanh form."""
    if is_tanh(approximate):
        t = torch.tanh(inner(x))
        return 0.5 * (1 - t * t) * _inner_slope(x), 0.5 * (1 + t)
    return _density(x), 0.5 * (1 + torch.erf(ROOT_HALF * x))


def _density(x: torch.Tensor) -> torch.Tensor:
    return _PEAK * torch.exp(-0.5 * (x * x))


def _inner_slope(x: torch.Tensor) -> torch.Tensor:
    return BETA * (1 + 3 * KAPPA * (x * x))
