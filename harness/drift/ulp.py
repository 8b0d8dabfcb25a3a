"""Distance between floating-point numbers in units in the last place (ULP).

The representable numbers of one format are points on a line; the distance between two of them is the number of steps
from one to the other. The bit pattern of a non-negative number, read as an integer, is its place on that line. The sign
bit mirrors this place about zero:

    distance(a, b) = | |a| - |b| |   for equal signs, where |x| is the pattern without its sign bit
    distance(a, b) =   |a| + |b|     for opposite signs

Sources: D. Goldberg, What Every Computer Scientist Should Know About Floating-Point Arithmetic, ACM Computing Surveys
    23(1), 1991; B. Dawson, Comparing Floating Point Numbers, 2012 Edition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAN_DISTANCE = 2**64 - 1
"""Distance between a NaN and a number. The largest distance of two numbers (-inf and inf in float64) is smaller."""

CHUNK = 1 << 20
"""The number of elements processed at a time, which bounds the temporary memory."""

_INFINITY = {np.dtype(np.float16): 0x7C00, np.dtype(np.float32): 0x7F800000, np.dtype(np.float64): 0x7FF0 << 48}
_BFLOAT16_INFINITY = 0x7F80


def ulp_distance(a: NDArray[Any], b: NDArray[Any], *, bfloat16: bool = False) -> NDArray[np.uint64]:
    """Count the steps between neighbouring representable numbers from each `a` to its `b`.

    -0.0 and 0.0 are the same place. Infinity is one step past the largest finite number. The distance of two NaNs is 0,
    that of a NaN and a number `NAN_DISTANCE`. The count is exact for any pair.

    a, b: arrays of one shape and one dtype: float16, float32 or float64.
    bfloat16: the arrays are uint16 and hold the bit patterns of bfloat16 numbers.
    """
    infinity = _infinity(a, b, bfloat16)
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    negative_a, magnitude_a = _sign_and_magnitude(a)
    negative_b, magnitude_b = _sign_and_magnitude(b)
    # Unsigned numbers cannot be negative, so the smaller is subtracted from the larger.
    apart = np.maximum(magnitude_a, magnitude_b) - np.minimum(magnitude_a, magnitude_b)
    distance = np.where(negative_a == negative_b, apart, magnitude_a + magnitude_b)
    # Every pattern beyond that of infinity is a NaN.
    nan_a, nan_b = magnitude_a > infinity, magnitude_b > infinity
    distance = np.where(nan_a | nan_b, np.uint64(NAN_DISTANCE), distance)
    return np.where(nan_a & nan_b, np.uint64(0), distance)


def max_ulp(a: NDArray[Any], b: NDArray[Any], *, bfloat16: bool = False) -> int:
    """Return the largest `ulp_distance` of two arrays, 0 for empty arrays, in bounded temporary memory."""
    _infinity(a, b, bfloat16)
    return max((int(ulp_distance(x, y, bfloat16=bfloat16).max()) for x, y in paired_chunks(a, b)), default=0)


def paired_chunks(a: NDArray[Any], b: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Yield flat native-endian pieces of both arrays, at most `CHUNK` elements at a time and in the same order.

    A piece is valid only until the next piece is requested.
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    if a.size == 0:
        return
    yield from np.nditer(
        (a, b),
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"], ["readonly"]],
        op_dtypes=[a.dtype.newbyteorder("="), b.dtype.newbyteorder("=")],
        casting="equiv",
        buffersize=CHUNK,
    )


def _infinity(a: NDArray[Any], b: NDArray[Any], bfloat16: bool) -> np.uint64:
    """Return the bit pattern of infinity in the common format. Raise TypeError for a format without ULP."""
    formats = {a.dtype.newbyteorder("="), b.dtype.newbyteorder("=")}
    if bfloat16 and formats == {np.dtype(np.uint16)}:
        return np.uint64(_BFLOAT16_INFINITY)
    if not bfloat16 and len(formats) == 1 and formats <= _INFINITY.keys():
        return np.uint64(_INFINITY[formats.pop()])
    expected = "uint16 bit patterns" if bfloat16 else "float16, float32 or float64 on both sides"
    raise TypeError(f"ULP distance needs {expected}, got {a.dtype} and {b.dtype}")


def _sign_and_magnitude(values: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    bits = native.view(np.dtype(f"u{native.itemsize}"))
    sign = bits.dtype.type(1 << (8 * native.itemsize - 1))
    return np.asarray(bits >= sign), np.asarray(bits & ~sign).astype(np.uint64)
