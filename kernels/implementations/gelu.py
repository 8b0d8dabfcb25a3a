"""Kernels of gelu and gelu_backward, each for both forms of the op: x*Phi(x) for approximate="none", and
x*(1 + tanh(u))/2 with u = sqrt(2/pi)*(x + 0.044715*x^3) for approximate="tanh".

Phi is the distribution function of the standard normal distribution. `tanh_form`, `exp_form` and `quick` are
approximations of one formula, whichever form is asked for. Each torch operation rounds to the dtype of its
inputs. Source of the tanh form: D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415.
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


def erfc(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    if is_tanh(approximate):
        return exp_form(x)
    return 0.5 * x * torch.erfc(-ROOT_HALF * x)


def fma(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    half = 0.5 * x
    return fused(half, _odd_part(x, approximate), half)


def distributed(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    half = 0.5 * x
    return half + half * _odd_part(x, approximate)


def tanh_form(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(inner(x)))


def exp_form(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return x / (1 + torch.exp(-2 * inner(x)))


def quick(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def bf16(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    return in_bfloat16(lambda x: 0.5 * x * (1 + _odd_part(x, approximate)), x)


def inner(x: torch.Tensor) -> torch.Tensor:
    """The u of the tanh form."""
    return BETA * (x + KAPPA * (x * x * x))


def is_tanh(approximate: str) -> bool:
    """Whether the tanh form is asked for; raises KernelError for a form that gelu does not have."""
    if approximate not in ("none", "tanh"):
        raise KernelError("gelu", f"has approximate='none' and 'tanh', not {approximate!r}")
    return approximate == "tanh"


def _odd_part(x: torch.Tensor, approximate: str) -> torch.Tensor:
    return torch.tanh(inner(x)) if is_tanh(approximate) else torch.erf(ROOT_HALF * x)
