"""Kernels of gelu and gelu_backward, each for both forms of the op: x*Phi(x) for approximate="none", and
x*(1 + tanh(u))/2 with u = sqrt(2/pi)*(x + 0.044715*x^3) for approximate="tanh".

Phi is the distribution function of the standard normal distribution, phi its density; the backward is
g*(Phi(x) + x*phi(x)), or g times the derivative of the tanh form. `tanh_form`, `exp_form` and `quick` ignore
`approximate`: each always computes its own approximation. Each torch operation rounds to the dtype of its inputs.
Source of the tanh form: D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415.
"""

from __future__ import annotations

import math

import torch

from numdrift.harness.errors import KernelError

from ..fused import fma as fused
from .precision import in_bfloat16

BETA = math.sqrt(2 / math.pi)
KAPPA = 0.044715
ROOT_HALF = math.sqrt(0.5)
_PEAK = 1 / math.sqrt(2 * math.pi)


def erfc(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    if _is_tanh(approximate):
        return exp_form(x)
    # 1 + erf(z) = erfc(-z), and only the right side keeps its digits where z is far below 0
    return 0.5 * x * torch.erfc(-ROOT_HALF * x)


def fma(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    half = 0.5 * x
    return fused(half, _odd_part(x, approximate), half)


def distributed(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    half = 0.5 * x
    return half + half * _odd_part(x, approximate)


def tanh_form(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(_inner(x)))


def exp_form(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return x / (1 + torch.exp(-2 * _inner(x)))


def quick(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def bf16(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return in_bfloat16(lambda x: 0.5 * x * (1 + _odd_part(x, approximate)), x)


def backward_erfc(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    if _is_tanh(approximate):
        u = _inner(x)
        s = torch.sigmoid(2 * u)
        # sigmoid(-2u) in place of 1 - s, which would lose the digits of the right tail
        return grad * (s + x * s * torch.sigmoid(-2 * u) * (2 * _inner_slope(x)))
    return grad * (0.5 * torch.erfc(-ROOT_HALF * x) + x * _density(x))


def backward_fma(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    slope, value = _parts(x, approximate)
    return grad * fused(x, slope, value)


def backward_distributed(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    slope, value = _parts(x, approximate)
    return grad * value + grad * x * slope


def backward_op_by_op(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    slope, value = _parts(x, approximate)
    return grad * (value + x * slope)


def backward_tanh_form(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return backward_op_by_op(grad, x, approximate="tanh")


def backward_bf16(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return in_bfloat16(lambda grad, x: backward_op_by_op(grad, x, approximate=approximate), grad, x)


def _is_tanh(approximate: str) -> bool:
    """Check whether the tanh form is requested; raise KernelError for a form that gelu does not have."""
    if approximate not in ("none", "tanh"):
        raise KernelError("gelu", f"supports approximate='none' and 'tanh', not {approximate!r}")
    return approximate == "tanh"


def _odd_part(x: torch.Tensor, approximate: str) -> torch.Tensor:
    return torch.tanh(_inner(x)) if _is_tanh(approximate) else torch.erf(ROOT_HALF * x)


def _inner(x: torch.Tensor) -> torch.Tensor:
    """Return u of the tanh form."""
    return BETA * (x + KAPPA * (x * x * x))


def _inner_slope(x: torch.Tensor) -> torch.Tensor:
    return BETA * (1 + 3 * KAPPA * (x * x))


def _density(x: torch.Tensor) -> torch.Tensor:
    return _PEAK * torch.exp(-0.5 * (x * x))


def _parts(x: torch.Tensor, approximate: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `slope` and `value` of the derivative value + x*slope: phi and Phi, or what replaces them in the tanh
    form."""
    if _is_tanh(approximate):
        t = torch.tanh(_inner(x))
        return 0.5 * (1 - t * t) * _inner_slope(x), 0.5 * (1 + t)
    return _density(x), 0.5 * (1 + torch.erf(ROOT_HALF * x))
