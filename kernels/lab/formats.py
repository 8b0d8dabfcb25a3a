"""Floating-point formats, and the unit in the last place in which the lab counts errors.

    ulp(r) = 2**(max(floor(log2 |r|), emin) - p + 1)

is the spacing of the format's numbers around the real number r. p is the precision (24 for float32, 8 for bfloat16) and
emin the exponent of the least normal number, so that below it the spacing is that of the subnormals. Source: J.-M.
Muller, On the definition of ulp(x), INRIA research report 5504, 2005 (Goldberg's ulp, extended to reals); D. Goldberg,
ACM Computing Surveys 23(1), 1991."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Format:
    """One binary format. `least_exponent` is emin; `beyond` is 2**(emax + 1), where numbers overflow."""

    name: str
    precision: int
    least_exponent: int
    beyond: float

    @property
    def unit_roundoff(self) -> float:
        """The largest relative error of rounding to nearest: 2**-p."""
        return math.ldexp(1.0, -self.precision)

    @property
    def smallest(self) -> float:
        """The smallest positive number, a subnormal."""
        return math.ldexp(1.0, self.least_exponent - self.precision + 1)

    @property
    def tiny(self) -> float:
        """The smallest normal number."""
        return math.ldexp(1.0, self.least_exponent)

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return math.ldexp(2.0 - math.ldexp(1.0, 1 - self.precision), 1 - self.least_exponent)

    def ulp(self, values: Float64s) -> Float64s:
        """Return the spacing of the format at each finite value; at zero that of the subnormals."""
        exponents = np.frexp(values)[1] - 1  # frexp's fraction is in [1/2, 1), a format's in [1, 2)
        exponents = np.where(values == 0, self.least_exponent, np.maximum(exponents, self.least_exponent))
        spacing: Float64s = np.ldexp(1.0, exponents - self.precision + 1)
        return spacing


def format_of(dtype: torch.dtype) -> Format:
    """Return the format of a floating-point dtype."""
    about = torch.finfo(dtype)
    precision = 1 - round(math.log2(about.eps))
    least = round(math.log2(about.tiny))
    beyond = math.inf if 2 - least > 1023 else math.ldexp(1.0, 2 - least)
    return Format(str(dtype).removeprefix("torch."), precision, least, beyond)


INTEGERS = Format("integers", 0, 1, math.inf)
"""The format of results that are not floating-point numbers: their errors are counted in units of 1."""


# The numbers of the input sets, one function for each set. A function takes a count, a format and a random generator,
# and returns that many numbers in float64; the caller rounds them to the format.

Draw = Callable[[int, Format, torch.Generator], torch.Tensor]

SATURATED_DEVIATION = 4.0
"""The standard deviation of pre-activations at which a third of them have |tanh| > 0.999."""

OFFSET_MEAN, OFFSET_DEVIATION = 100.0, 0.1
"""Mean and deviation at which a one-pass variance loses all its digits in float32."""

RANGE = 30
"""The number of powers of ten that the dynamic range covers on either side of 1, limited by the format."""


def normal(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw from N(0, 1)."""
    return torch.randn(count, dtype=torch.float64, generator=generator)


def saturated(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw from N(0, 4^2)."""
    return SATURATED_DEVIATION * normal(count, form, generator)


def offset(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw from N(100, 0.1^2)."""
    return OFFSET_MEAN + OFFSET_DEVIATION * normal(count, form, generator)


def dynamic_range(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers of either sign, log-uniform in magnitude from 1e-30 to 1e30, within the range of the format."""
    return _log_uniform(count, form, generator, RANGE)


def half_dynamic_range(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers of either sign, log-uniform in magnitude from 1e-15 to 1e15; squares stay within float32."""
    return _log_uniform(count, form, generator, RANGE / 2)


def subnormal(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers of either sign, log-uniform from the format's smallest number to its smallest normal number."""
    exponents = _uniform(count, generator) * (form.precision - 1)
    return _signs(count, generator) * torch.ceil(torch.exp2(exponents)) * form.smallest


def zero(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw 0.0 and -0.0."""
    return torch.copysign(torch.zeros(count, dtype=torch.float64), _signs(count, generator))


def special(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw NaN, infinities, zeros, ones and the extremes of the format."""
    positive = [0.0, 1.0, math.inf, form.largest, form.tiny, form.smallest, 2.0, 0.5]
    pool = torch.tensor([math.nan, *positive, *(-number for number in positive)], dtype=torch.float64)
    return pool[torch.randint(len(pool), (count,), generator=generator)]


def ties(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw numbers whose squares, or whose sums with 1, are half way between two numbers of the format.

    Let p be the precision. The square of an odd integer m with 2**p <= m**2 < 2**(p + 1) has p + 1 bits, of which the
    last is 1: a tie. A quarter of the numbers, on average, are instead odd multiples of half an ULP of 1."""
    low, high = math.ceil(2 ** (form.precision / 2)), math.floor(2 ** ((form.precision + 1) / 2))
    odd = torch.randint(low // 2, (high + 1) // 2, (count,), generator=generator).double() * 2 + 1
    squares = odd * 2.0 ** -(math.ceil(form.precision / 2) + 1)
    halves = (torch.randint(1, 64, (count,), generator=generator).double() * 2 + 1) * form.unit_roundoff
    quarter = torch.randint(4, (count,), generator=generator) == 0
    return _signs(count, generator) * torch.where(quarter, halves, squares)


def near_one(count: int, form: Format, generator: torch.Generator) -> torch.Tensor:
    """Draw 1 - k ULP of either sign, for k log-uniform from 1 to 4096. In short formats, the limit is lower, to keep
    the numbers above 1/2."""
    steps = torch.floor(torch.exp2(_uniform(count, generator) * min(12, form.precision - 2)))
    return _signs(count, generator) * (1 - steps * form.unit_roundoff)


def _log_uniform(count: int, form: Format, generator: torch.Generator, powers: float) -> torch.Tensor:
    low = max(math.log10(form.smallest), -powers)
    high = min(math.log10(form.largest) - 0.01, powers)
    return _signs(count, generator) * 10 ** (low + (high - low) * _uniform(count, generator))


def _uniform(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, dtype=torch.float64, generator=generator)


def _signs(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(2, (count,), generator=generator).double() * 2 - 1
