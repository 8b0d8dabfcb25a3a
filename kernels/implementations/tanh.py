"""Kernels of tanh: float32 formulas that accelerators and compilers use in its place.

Each torch operation rounds to the dtype of its inputs. Formulas in exp(-2|x|) take the sign from x, so that
large arguments do not overflow.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .precision import in_bfloat16

_NUMERATOR = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_DENOMINATOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ONE_FROM = 7.90531110763549805
"""Where the rational function reaches 1 in float32."""
_STRAIGHT_BELOW = 0.0004
"""Where tanh(x) is x in float32."""


def exp_form(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-2 * x.abs())
    return torch.copysign((1 - e) / (1 + e), x)


def expm1_form(x: torch.Tensor) -> torch.Tensor:
    m = torch.expm1(-2 * x.abs())
    return torch.copysign(-m / (m + 2), x)


def sigmoid_form(x: torch.Tensor) -> torch.Tensor:
    return 2 * torch.sigmoid(2 * x) - 1


def rational(x: torch.Tensor) -> torch.Tensor:
    """Eigen's quotient of polynomials, of degree 13 and 6, as XLA uses it; the half formats in float32."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    inside = wide.clamp(-_ONE_FROM, _ONE_FROM)
    square = inside * inside
    quotient = inside * _polynomial(_NUMERATOR, square) / _polynomial(_DENOMINATOR, square)
    return torch.where(wide.abs() < _STRAIGHT_BELOW, wide, quotient).to(x.dtype)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(torch.tanh, x)


def _polynomial(coefficients: Sequence[float], x: torch.Tensor) -> torch.Tensor:
    """Horner's scheme, highest power first."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total = total * x + coefficient
    return total
