"""L2 norms whose squares neither overflow nor vanish, and the difference of one array from another.

    ||x||_2 = 2**e * sqrt(sum (x_i / 2**e)**2)        2**e: the power of two just above max |x_i|

(J. L. Blue, A Portable Fortran Program to Find the Euclidean Norm of a Vector, ACM TOMS 4(1), 1978.) As in that
program, the slow scaling is left out where the plain sum of squares is far from both ends of float64's range.
Everything is accumulated in float64; a complex number counts as its real and its imaginary part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]

PIECE = 1 << 16
"""The number of elements processed at a time: as float64 they fit into a processor's cache."""

UNSCALED = 1e-250, 1e250
"""The range in which a sum of squares needs no scaling: squares that underflow to 0 reduce it by less than 1e-300."""


@dataclass(frozen=True, slots=True)
class Norm:
    """The number mantissa * 2**exponent, which may be out of a float's range."""

    mantissa: float
    exponent: int

    @property
    def exact(self) -> Fraction:
        return Fraction(self.mantissa) * Fraction(2) ** self.exponent

    @property
    def value(self) -> float:
        """The nearest float; infinite beyond the range of floats."""
        return as_float(self.exact)


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of array b from a, over the elements that are finite on both sides.

    same_places: True if NaNs and infinities of either sign are at the same places
    differing: the number of elements that differ in value; 0.0 equals -0.0, and a NaN equals a NaN
    """

    distance: Norm
    norm: Norm
    same_places: bool
    differing: int


def as_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def is_floating(array: Array) -> bool:
    return array.dtype.kind in "fc"


def norm(array: Array) -> Norm:
    """Return the norm of the finite elements of a floating array."""
    return _joined(_norm(x[np.isfinite(x)]) for x in _pieces(array))


def difference(a: Array, b: Array) -> Difference:
    """Compare b with a, both floating and of one shape."""
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    distances, norms, same_places, differing = [], [], True, 0
    for x, y in zip(_pieces(a, b), _pieces(b, a), strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            apart = y - x
        if np.isfinite(apart).all():
            differing += int(np.count_nonzero(apart))
            norms.append(_norm(x))
            distances.append(_norm(apart))
            continue
        finite = np.isfinite(x) & np.isfinite(y)
        unequal = (x != y) & ~(np.isnan(x) & np.isnan(y))
        same_places &= not np.any(unequal & ~finite)
        differing += int(np.count_nonzero(unequal))
        norms.append(_norm(x[np.isfinite(x)]))
        if np.isinf(apart[finite]).any():  # two finite numbers further apart than the largest float
            halved = _norm(y[finite] / 2 - x[finite] / 2)
            distances.append(Norm(halved.mantissa, halved.exponent + 1))
        else:
            distances.append(_norm(apart[finite]))
    return Difference(_joined(distances), _joined(norms), same_places, differing)


def root_mean_square(norms: Iterable[Norm]) -> Norm:
    """Return sqrt(mean n_i**2); 0 without norms."""
    listed = list(norms)
    together = _joined(listed)
    return Norm(together.mantissa / math.sqrt(max(1, len(listed))), together.exponent)


def _pieces(array: Array, beside: Array | None = None) -> Iterator[Floats]:
    """Yield the elements in order as float64, PIECE at a time.

    Real numbers get imaginary parts if `beside` is complex.
    """
    flat = array.reshape(-1)
    wide = np.complex128 if "c" in (array.dtype.kind, beside.dtype.kind if beside is not None else "") else np.float64
    for start in range(0, flat.size, PIECE):
        yield flat[start : start + PIECE].astype(wide).view(np.float64)


def _norm(finite: Floats) -> Norm:
    least, most = UNSCALED
    with np.errstate(over="ignore", under="ignore"):
        square = float(np.einsum("i,i->", finite, finite))
    if least < square < most:
        return Norm(math.sqrt(square), 0)
    magnitudes = np.abs(finite)
    largest = float(magnitudes.max(initial=0.0))
    if largest == 0.0:
        return Norm(0.0, 0)
    exponent = math.frexp(largest)[1]
    # Scaled in two halves, since 2**-exponent itself overflows for the smallest numbers.
    scaled = np.ldexp(np.ldexp(magnitudes, -(exponent // 2)), exponent // 2 - exponent)
    return Norm(math.sqrt(float(np.sum(scaled * scaled))), exponent)


def _joined(norms: Iterable[Norm]) -> Norm:
    parts = [part for part in norms if part.mantissa]
    exponent = max((part.exponent for part in parts), default=0)
    return Norm(math.hypot(*(math.ldexp(part.mantissa, part.exponent - exponent) for part in parts)), exponent)
