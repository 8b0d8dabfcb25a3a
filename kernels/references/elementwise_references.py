"""Elementwise functions and their backwards in higher precision: the references with which kernels are compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..fused import two_product
from .sum_references import Pair, constant, over, pair, plus, settled, times

# Activations and their backwards in float64, free of cancellation.
#
# Tensors are float64 and broadcast. Even near zeros of the derivatives, the relative error stays below 1e-14 or the
# absolute error below the smallest subnormal of float32. Infinities follow the op's definition: the result is nan where
# the definition multiplies infinity by zero.

_SILU_ZERO = (-1.2784645427610737, -1.0946994183093437e-16)
"""The zero of silu's derivative, that is, of exp(x) + x + 1, as a high and a low part."""


def tanh(x: torch.Tensor) -> torch.Tensor:
    m = torch.expm1(-2 * x.abs())
    return torch.copysign(-m / (m + 2), x)


def tanh_backward(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """grad*(1 - y*y), factored so that 1 - y and 1 + y lose no digits of y."""
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

    Left of 0 the derivative is exp(x)*h/(1 + exp(x))**2 with h = exp(x) + x + 1. With the zero r of h and d = x - r,
    h is d + exp(r)*expm1(d), and both terms have the same sign.
    """
    e = torch.exp(-x.abs())
    s = sigmoid(x)
    offset = (x - _SILU_ZERO[0]) - _SILU_ZERO[1]
    left = e * (offset - (1 + _SILU_ZERO[0]) * torch.expm1(offset)) / (1 + e) ** 2
    right = s * (1 + x * (e * s))
    return grad * torch.where(x < 0, left, right)


# gelu and gelu_backward in float64, free of cancellation; as accurate as the activations above. The argument of erfc
# and exp has 106 bits, since the relative error of the result is the argument's error times the square of the argument.
# Near the zero r of a derivative, the derivative's Taylor series in x - r replaces the sum that cancels. The constants
# were computed with mpmath at 60 digits.

_ROOT_HALF = (0.7071067811865476, -4.833646656726457e-17)
_TWO_BETA = (1.5957691216057308, -9.96930880911092e-17)
"""2*sqrt(2/pi)"""
_KAPPA = (0.044715, 2.1960211427085595e-18)
_PEAK = 0.3989422804014327
"""1/sqrt(2*pi)"""
_TWO_OVER_ROOT_PI = 1.1283791670955126
_SATURATED = 64.0
"""The bound beyond which the distribution functions are 0 or 1 and the densities 0 in float64."""


@dataclass(frozen=True, slots=True)
class _Zero:
    """A zero of a derivative, as a high and a low part, with the Taylor coefficients of the derivative at this zero,
    from the first power on."""

    high: float
    low: float
    coefficients: tuple[float, ...]


_ERF_ZERO = _Zero(
    -0.7517915246935645, 1.4956759177009883e-17, (
        0.4314939923140469, 0.388284982990552, -0.018199676398671087, -0.1140082332972217, -0.014771522148244337,
        0.019421679838189067, 0.004539228379125415, -0.002239538068073497, -0.0007448268386746817,
        0.00018633974623233514, 8.615947861116571e-05, -1.121438018842664e-05, -7.74846130700372e-06,
        4.3284506257392273e-07, 5.702764979242107e-07,
    ),
)  # fmt: skip
_TANH_ZERO = _Zero(
    -0.7524614220710163, 3.635560509207687e-17, (
        0.4304000910248585, 0.38751844613578895, -0.01578285352184803, -0.11394448308095899, -0.01661932834305256,
        0.019682309459833118, 0.005261059254921912, -0.0024227318458750974, -0.0009274420230205449,
        0.00026392764052681053, 0.00012425227802639782, -3.4956171694436116e-05, -1.5950896871645105e-05,
        5.918611710894005e-06, 2.4335516344299543e-06,
    ),
)  # fmt: skip
_NEAR = 1 / 8


def gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """x*Phi(x), or x*sigmoid(2*u), which is the tanh form x*(1 + tanh(u))/2."""
    inside = x.clamp(-_SATURATED, _SATURATED)
    return x * (_logistic(_exponent(inside)) if approximate == "tanh" else _normal(inside))


def gelu_backward(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """grad*(Phi(x) + x*phi(x)), or grad times the derivative of the tanh form."""
    inside = x.clamp(-_SATURATED, _SATURATED)
    if approximate == "tanh":
        # s + x*s*(1 - s)*2*u' with s = sigmoid(2*u) and 1 - s = sigmoid(-2*u)
        high, low = _exponent(inside)
        value, complement = _logistic((high, low)), _logistic((-high, -low))
        slope = value * (1 + inside * complement * (_TWO_BETA[0] * (1 + 3 * _KAPPA[0] * (inside * inside))))
        slope = _near(_TANH_ZERO, inside, slope)
    else:
        slope = _near(_ERF_ZERO, inside, _normal(inside) + inside * _density(inside))
    # the argument was clamped, but a NaN or infinite argument must make the result NaN
    return grad * (slope + 0 * x)


def _normal(x: torch.Tensor) -> torch.Tensor:
    """Phi(x) = erfc(z)/2 with z = -x*sqrt(1/2) in two parts; the low part is multiplied by the derivative of erfc."""
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


def _near(zero: _Zero, x: torch.Tensor, elsewhere: torch.Tensor) -> torch.Tensor:
    """Return the Taylor series of a derivative near its zero, and `elsewhere` further away."""
    offset = (x - zero.high) - zero.low
    series = torch.full_like(offset, zero.coefficients[-1])
    for coefficient in reversed(zero.coefficients[:-1]):
        series = series * offset + coefficient
    return torch.where(offset.abs() < _NEAR, offset * series, elsewhere)


# addcmul, addcdiv and lerp in float64: evaluated with 106 bits and rounded once, so nothing cancels. Tensors are
# float64 and broadcast. A number (`value`, a scalar weight) is used unrounded, although kernels round it to their own
# precision. Where a part overflows, the plain float64 formula is used.


def addcmul(base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """base + value*first*second."""
    product = times(times(pair(first), pair(second)), _number(value, base))
    return settled(plus(pair(base), product), base + value * first * second)


def addcdiv(base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """base + value*first/second."""
    quotient = over(times(pair(first), _number(value, base)), pair(second))
    return settled(plus(pair(base), quotient), base + value * first / second)


def lerp(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """start + weight*(end - start)."""
    factor = pair(weight) if isinstance(weight, torch.Tensor) else _number(weight, start)
    step = times(factor, plus(pair(end), pair(-start)))
    return settled(plus(pair(start), step), start + weight * (end - start))


def _number(value: float, like: torch.Tensor) -> Pair:
    return pair(like.new_full((), value))
