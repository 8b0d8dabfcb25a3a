"""Numbers of about 106 bits, as the unevaluated sum of two float64 tensors: a high part and its rounding error.

Source: T. J. Dekker, A floating-point technique for extending the available precision, Numer. Math. 18, 1971.
A part that overflows makes nan; `settled` puts the plain float64 value in its place.
"""

from __future__ import annotations

import torch

from ..fused import two_product, two_sum

Pair = tuple[torch.Tensor, torch.Tensor]


def pair(value: torch.Tensor) -> Pair:
    """A float64 tensor as a pair."""
    return value, torch.zeros_like(value)


def constant(high: float, low: float, like: torch.Tensor) -> Pair:
    """high + low as a pair without dimensions, on the device of `like`."""
    return like.new_full((), high), like.new_full((), low)


def plus(a: Pair, b: Pair) -> Pair:
    high, low = two_sum(a[0], b[0])
    return two_sum(high, low + (a[1] + b[1]))


def times(a: Pair, b: Pair) -> Pair:
    high, low = two_product(a[0], b[0])
    return two_sum(high, low + (a[0] * b[1] + a[1] * b[0]))


def over(a: Pair, b: Pair) -> Pair:
    high = a[0] / b[0]
    covered = times(pair(high), b)
    return two_sum(high, ((a[0] - covered[0]) - covered[1] + a[1]) / b[0])


def settled(value: Pair, plain: torch.Tensor) -> torch.Tensor:
    """The pair rounded to float64; `plain` where that is not finite."""
    total = value[0] + value[1]
    return torch.where(torch.isfinite(total), total, plain)
