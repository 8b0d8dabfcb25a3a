"""gelu and gelu_backward in float64, free of cancellation; accurate as said in `activations`.

The argument of erfc and exp is taken with 106 bits, since their relative error is the argument's error times
the square of the argument. Near the zero r of a derivative its Taylor series in x - r replaces the sum that
cancels. The constants were computed with mpmath at 60 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..fused import two_product
from .double_double import Pair, constant, pair, plus, times

_ROOT_HALF = (0.7071067811865476, -4.833646656726457e-17)
_TWO_BETA = (1.5957691216057308, -9.96930880911092e-17)
"""2*sqrt(2/pi)"""
_KAPPA = (0.044715, 2.1960211427085595e-18)
_PEAK = 0.3989422804014327
"""1/sqrt(2*pi)"""
_TWO_OVER_ROOT_PI = 1.1283791670955126
_SATURATED = 64.0
"""Beyond, the distribution functions are 0 or 1 and the densities 0 in float64."""


@dataclass(frozen=True, slots=True)
class _Zero:
    """A zero of a derivative, as high and low part, and the Taylor coefficients there from the first power
    on."""

    high: float
    low: float
    coefficients: tuple[float, ...]


_ERF_ZERO = _Zero(
    -0.7517915246935645,
    1.4956759177009883e-17,
    (
        0.4314939923140469,
        0.388284982990552,
        -0.018199676398671087,
        -0.1140082332972217,
        -0.014771522148244337,
        0.019421679838189067,
        0.004539228379125415,
        -0.002239538068073497,
        -0.0007448268386746817,
        0.00018633974623233514,
        8.615947861116571e-05,
        -1.121438018842664e-05,
        -7.74846130700372e-06,
        4.3284506257392273e-07,
        5.702764979242107e-07,
    ),
)
_TANH_ZERO = _Zero(
    -0.7524614220710163,
    3.635560509207687e-17,
    (
        0.4304000910248585,
        0.38751844613578895,
        -0.01578285352184803,
        -0.11394448308095899,
        -0.01661932834305256,
        0.019682309459833118,
        0.005261059254921912,
        -0.0024227318458750974,
        -0.0009274420230205449,
        0.00026392764052681053,
        0.00012425227802639782,
        -3.4956171694436116e-05,
        -1.5950896871645105e-05,
        5.918611710894005e-06,
        2.4335516344299543e-06,
    ),
)
_NEAR = 1 / 8


def gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """x*Phi(x), or x*sigmoid(2*u), which is the tanh form x*(1 + tanh(u))/2."""
    inside = x.clamp(-_SATURATED, _SATURATED)
    return x * (_logistic(_exponent(inside)) if approximate == "tanh" else _normal(inside))


def gelu_backward(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """grad*(Phi(x) + x*phi(x)), or the derivative of the tanh form."""
    inside = x.clamp(-_SATURATED, _SATURATED)
    if approximate == "tanh":
        slope = _near(_TANH_ZERO, inside, _tanh_slope(inside))
    else:
        slope = _near(_ERF_ZERO, inside, _normal(inside) + inside * _density(inside))
    return grad * (slope + 0 * x)


def _normal(x: torch.Tensor) -> torch.Tensor:
    """Phi(x) = erfc(z)/2 with z = -x*sqrt(1/2) in two parts; the low one by the first derivative of erfc."""
    high, low = times(pair(-x), constant(*_ROOT_HALF, x))
    return 0.5 * (torch.erfc(high) - _TWO_OVER_ROOT_PI * torch.exp(-high * high) * low)


def _density(x: torch.Tensor) -> torch.Tensor:
    high, low = two_product(x, x)
    return _PEAK * torch.exp(-0.5 * high) * (1 - 0.5 * low)


def _exponent(x: torch.Tensor) -> Pair:
    """2*u = 2*sqrt(2/pi)*(x + 0.044715*x**3)."""
    stretch = plus(constant(1.0, 0.0, x), times(constant(*_KAPPA, x), times(pair(x), pair(x))))
    return times(times(pair(x), constant(*_TWO_BETA, x)), stretch)


def _logistic(x: Pair) -> torch.Tensor:
    left = x[0] < 0
    e = torch.exp(-x[0].abs()) * (1 + torch.where(left, x[1], -x[1]))
    return torch.where(left, e, torch.ones_like(e)) / (1 + e)


def _tanh_slope(x: torch.Tensor) -> torch.Tensor:
    """s + x*s*(1 - s)*2*u' with s = sigmoid(2*u) and 1 - s = sigmoid(-2*u)."""
    high, low = _exponent(x)
    value, rest = _logistic((high, low)), _logistic((-high, -low))
    return value * (1 + x * rest * (_TWO_BETA[0] * (1 + 3 * _KAPPA[0] * (x * x))))


def _near(zero: _Zero, x: torch.Tensor, elsewhere: torch.Tensor) -> torch.Tensor:
    offset = (x - zero.high) - zero.low
    return torch.where(offset.abs() < _NEAR, offset * _series(zero.coefficients, offset), elsewhere)


def _series(coefficients: Sequence[float], x: torch.Tensor) -> torch.Tensor:
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total
