"""The values of torch's dtypes as NumPy arrays. A number whose dtype NumPy lacks becomes a float32, or a complex64.

Each such number is exact in the wider dtype. The bits of a NaN are kept only for bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

COMPLEX = {"complex64", "complex128"}
WHOLE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}

FLOAT8 = {"float8_e5m2": (2, 15), "float8_e4m3fn": (3, 7), "float8_e5m2fnuz": (2, 16), "float8_e4m3fnuz": (3, 8)}
"""The bits of the fraction, and the bias of the exponent. Source: Micikevicius et al., arXiv 2209.05433, and Noune et
al., arXiv 2206.02915, for the types with `uz`, which have no infinities and one NaN (0x80)."""

NUMPY_TYPES = {
    **{name: name for name in {"float16", "float32", "float64", "bool"} | COMPLEX | WHOLE},
    "bfloat16": "uint16",
    "complex32": "uint32",
    **dict.fromkeys((*FLOAT8, "float8_e8m0fnu"), "uint8"),
}
"""The NumPy dtype in which a torch dtype is read. Dtypes that NumPy lacks are read as integers with the same bits."""


def as_numbers(bits: Array, dtype: str) -> Array:
    """Return the numbers of a torch dtype; `bits` has them in the dtype of NUMPY_TYPES, and is returned if they fit.

    Raises KeyError for a dtype that NUMPY_TYPES lacks.
    """
    if dtype == NUMPY_TYPES[dtype]:
        return bits
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype == "complex32":  # a pair of float16 in each element
        return np.ascontiguousarray(bits).view(np.float16).astype(np.float32).view(np.complex64).reshape(bits.shape)
    return _of_float8(dtype)[bits]


def _of_float8(dtype: str) -> Array:
    """Return the number of each of the 256 patterns of an 8-bit dtype, as float32."""
    patterns = np.arange(256)
    if dtype == "float8_e8m0fnu":  # powers of two
        return np.where(patterns == 255, np.nan, np.ldexp(np.float32(1), np.minimum(patterns, 254) - 127)).astype(
            np.float32
        )
    fraction_bits, bias = FLOAT8[dtype]
    exponent, fraction = (patterns & 0x7F) >> fraction_bits, patterns & ((1 << fraction_bits) - 1)
    # A subnormal number has no leading one, and the exponent of the smallest normal number.
    leading = np.where(exponent > 0, 1 << fraction_bits, 0)
    sizes = np.ldexp((leading + fraction).astype(np.float32), np.maximum(exponent, 1) - bias - fraction_bits)
    numbers = np.where(patterns < 0x80, sizes, -sizes)
    if dtype.endswith("fnuz"):
        numbers[0x80] = np.nan
    elif dtype == "float8_e5m2":  # as IEEE: the largest exponent has the infinities and NaN
        numbers = np.where(exponent < 31, numbers, np.where(fraction > 0, np.nan, np.copysign(np.inf, numbers)))
    else:
        numbers[[0x7F, 0xFF]] = np.nan
    return np.asarray(numbers, np.float32)
