"""Operands on which a kernel that rounds once too often, or in another order, gives other bits."""

from __future__ import annotations

import itertools
import math

import torch

from .arithmetic import Arithmetic


def special(arithmetic: Arithmetic) -> list[float]:
    """Zeros, subnormals, the ends of the range, infinities and NaN."""
    tiny = math.ldexp(1.0, arithmetic.last_place)
    smallest = math.ldexp(tiny, arithmetic.precision - 1)
    largest = math.ldexp(2.0 - math.ldexp(1.0, 1 - arithmetic.precision), arithmetic.overflow - 1)
    positive = [0.0, tiny, 3 * tiny, smallest - tiny, smallest, smallest + tiny, largest, math.inf]
    return [*positive, *(-one for one in positive), math.nan]


def around_one(arithmetic: Arithmetic) -> list[float]:
    """Where tanh saturates: 1 - k * 2**-precision, and a little above 1."""
    step = math.ldexp(1.0, -arithmetic.precision)
    below = [1 - k * step for k in (1, 2, 3, 4, 5, 7, 100, 2895, 2897, 4097, 10**6 + 1)]
    return [sign * one for one in [*below, 1.0, 1 + 2 * step, 1 + 6 * step] for sign in (1, -1)]


def ordinary(arithmetic: Arithmetic, count: int, seed: int) -> list[float]:
    """Random significands over a wide range of exponents, short ones (whose products tie) among them."""
    made = torch.Generator().manual_seed(seed)
    dtype = getattr(torch, arithmetic.dtype)
    values = torch.randn(count, generator=made, dtype=torch.float64)
    values *= 2.0 ** torch.randint(-12, 12, (count,), generator=made)
    short = torch.randint(1, 1 << (arithmetic.precision // 2 + 1), (count,), generator=made).double() * 2 + 1
    mixed = torch.where(torch.arange(count) % 2 == 0, values, short / 4096)
    return [float(one) for one in mixed.to(dtype)]


def pairs(arithmetic: Arithmetic) -> list[tuple[float, ...]]:
    """A few thousand (g, y)."""
    g = [*special(arithmetic), *ordinary(arithmetic, 40, 1), 1.0, -2.0]
    y = [*special(arithmetic), *around_one(arithmetic), *ordinary(arithmetic, 40, 2), 0.5, -0.75]
    return list(itertools.product(g, y))


def triples(arithmetic: Arithmetic) -> list[tuple[float, ...]]:
    """A few thousand (a, b, c): all special ones, ordinary ones, and near cancellations of a * b and c."""
    few = [*special(arithmetic)[::2], math.nan, 1.0, -1.5]
    a, b = ordinary(arithmetic, 400, 3), ordinary(arithmetic, 400, 4)
    step = math.ldexp(1.0, 1 - arithmetic.precision)
    near = [
        (x, y, arithmetic.mul(-arithmetic.mul(x, y), 1 + k * step))
        for x, y in zip(a, b, strict=True)
        for k in (-2, 0, 1)
    ]
    return [*itertools.product(few, few, few), *zip(a, b, reversed(a), strict=True), *near]


def ties(dtype: torch.dtype, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """a, b, c where a * b lies half way between two numbers, and c is 0 or far too small to be seen by one rounding
    more; then where c is of any size and a * b is half its last place or next to that."""
    made = torch.Generator().manual_seed(seed)
    precision = 24 if dtype == torch.float32 else 53
    half = precision // 2

    def odd(bits: int) -> torch.Tensor:
        low, high = 1 << (bits - 2), 1 << (bits - 1)
        return torch.randint(low, high, (count,), generator=made).double() * 2 + 1

    def sign() -> torch.Tensor:
        return torch.randint(0, 2, (count,), generator=made).double() * 2 - 1

    def scale(low: int, high: int) -> torch.Tensor:
        return torch.ldexp(torch.ones(count, dtype=torch.float64), torch.randint(low, high, (count,), generator=made))

    tiny = sign() * scale(-3 * precision, -precision) * torch.randint(0, 2, (count,), generator=made)
    tied = (odd(half) * sign(), odd(precision + 1 - half), tiny)
    c = odd(precision) * sign() * scale(-3, 3)
    last_place = torch.ldexp(torch.ones_like(c), torch.frexp(c).exponent - precision)
    nudge = 1 + sign() * torch.randint(0, 2, (count,), generator=made) * 2.0 ** (1 - precision)
    beside = (last_place * sign(), nudge / 2, c)
    a, b, d = (torch.cat(both).to(dtype) for both in zip(tied, beside, strict=True))
    return a, b, d
