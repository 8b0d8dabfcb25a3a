"""Functions to any number of digits, by mpmath: what the lab measures kernels against."""

from __future__ import annotations

from mpmath import mp, mpf

# Activations and their backwards on mpmath numbers, from their definitions.
#
# Tails are written so that 1 - s never cancels: a working precision of 50 digits gives float64 twice over.


def tanh(x: mpf) -> mpf:
    return mp.tanh(x)


def tanh_backward(grad: mpf, y: mpf) -> mpf:
    return grad * (1 - y) * (1 + y)


def sigmoid(x: mpf) -> mpf:
    return 1 / (1 + mp.exp(-x))


def sigmoid_backward(grad: mpf, y: mpf) -> mpf:
    return grad * y * (1 - y)


def silu(x: mpf) -> mpf:
    return x * sigmoid(x)


def silu_backward(grad: mpf, x: mpf) -> mpf:
    return grad * sigmoid(x) * (1 + x * sigmoid(-x))


def gelu(x: mpf, *, approximate: str = "none") -> mpf:
    return x * (sigmoid(2 * _inner(x)) if approximate == "tanh" else _normal(x))


def gelu_backward(grad: mpf, x: mpf, *, approximate: str = "none") -> mpf:
    if approximate == "tanh":
        u = _inner(x)
        slope = mp.sqrt(2 / mp.pi) * (1 + 3 * mpf("0.044715") * x**2)
        return grad * sigmoid(2 * u) * (1 + x * sigmoid(-2 * u) * 2 * slope)
    return grad * (_normal(x) + x * mp.npdf(x))


def _normal(x: mpf) -> mpf:
    """The distribution function of the standard normal distribution; 0 or 1 where mpmath cannot tell."""
    if abs(x) > 10**6:
        return mpf(x > 0)
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _inner(x: mpf) -> mpf:
    return mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)


# addcmul, addcdiv and lerp on mpmath numbers. Numbers that are not tensors count as they are given.


def addcmul(base: mpf, first: mpf, second: mpf, *, value: float = 1) -> mpf:
    return base + mp.convert(value) * first * second


def addcdiv(base: mpf, first: mpf, second: mpf, *, value: float = 1) -> mpf:
    return base + mp.convert(value) * first / second


def lerp(start: mpf, end: mpf, weight: mpf | float) -> mpf:
    return start + mp.convert(weight) * (end - start)
