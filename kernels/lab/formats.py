"""Floating-point formats, and the unit in the last place in which the lab counts errors.

    ulp(r) = 2**(max(floor(log2 |r|), emin) - p + 1)

is the distance of the numbers of the format around the real number r: p is the precision (24 for float32, 8
for bfloat16) and emin the exponent of the least normal number, so that below it the spacing is that of the
subnormals. Source: J.-M. Muller, On the definition of ulp(x), INRIA research report 5504, 2005 (Goldberg's
ulp, extended to reals); D. Goldberg, ACM Computing Surveys 23(1), 1991."""

from __future__ import annotations

import math
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
        """Largest relative error of rounding to nearest: 2**-p."""
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
        return math.ldexp(2.0 - math.ldexp(1.0, 1 - self.precision), self.greatest_exponent)

    @property
    def greatest_exponent(self) -> int:
        """Exponent of the largest number: emax."""
        return 1 - self.least_exponent

    def ulp(self, values: Float64s) -> Float64s:
        """The spacing of the format at each finite value; at zero that of the subnormals."""
        exponents = np.frexp(values)[1] - 1
        exponents = np.where(values == 0, self.least_exponent, np.maximum(exponents, self.least_exponent))
        spacing: Float64s = np.ldexp(1.0, exponents - self.precision + 1)
        return spacing


def format_of(dtype: torch.dtype) -> Format:
    """The format of a floating dtype."""
    about = torch.finfo(dtype)
    precision = 1 - round(math.log2(about.eps))
    least = round(math.log2(about.tiny))
    beyond = math.inf if 2 - least > 1023 else math.ldexp(1.0, 2 - least)
    return Format(str(dtype).removeprefix("torch."), precision, least, beyond)


INTEGERS = Format("integers", 0, 1, math.inf)
"""Stands for results that are no floating-point numbers: they are counted in ones."""
