"""IEEE 754 arithmetic on exact rationals: what a kernel in C must give, to the bit, one rounding at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A binary format: bits of precision, the exponents of its last subnormal place and of its overflow."""

    dtype: str
    precision: int
    last_place: int
    overflow: int

    def rounded(self, exact: Fraction, zero: float = 0.0) -> float:
        """The nearest number of the format, ties to even; `zero` gives the sign that a result of 0 has."""
        magnitude = abs(exact)
        if magnitude == 0:
            return math.copysign(0.0, zero)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if Fraction(2) ** exponent > magnitude:
            exponent -= 1
        place = max(exponent - self.precision + 1, self.last_place)
        whole = round(magnitude / Fraction(2) ** place)
        overflows = whole >= Fraction(2) ** (self.overflow - place)
        return (-1 if exact < 0 else 1) * (math.inf if overflows else math.ldexp(whole, place))

    def mul(self, a: float, b: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a * b
        return self.rounded(Fraction(a) * Fraction(b), math.copysign(1, a) * math.copysign(1, b))

    def add(self, a: float, b: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a + b
        return self.rounded(Fraction(a) + Fraction(b), a + b if a == b == 0 else 0.0)

    def sub(self, a: float, b: float) -> float:
        return self.add(a, -b)

    def fma(self, a: float, b: float, c: float) -> float:
        if not (math.isfinite(a) and math.isfinite(b)):
            return a * b + c
        if not math.isfinite(c):
            return c
        sign = math.copysign(1, a) * math.copysign(1, b)
        exact = Fraction(a) * Fraction(b)
        product_is_zero = a == 0 or b == 0
        zero = math.copysign(0.0, sign) + c if product_is_zero and c == 0 else 0.0
        return self.rounded(exact + Fraction(c), zero)


FLOAT32 = Arithmetic("float32", precision=24, last_place=-149, overflow=128)
FLOAT64 = Arithmetic("float64", precision=53, last_place=-1074, overflow=1024)
