"""The distance between two float32 arrays in one pass over both, with native code.

It computes what `parameter_distance` computes with NumPy, at more than thirty times the speed. The sum of squares is
taken in a different order, so `relative_l2` may differ from NumPy's in its last digits. It does not depend on the CPU.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiler import CSource, compile_library
from ..errors import NumdriftError
from .ulp import NAN_DISTANCE

SOURCE = CSource(
    Path(__file__).with_name("distance.c"),
    # The contraction to fused multiply-adds is off, so that results do not depend on the CPU.
    flags=("-O3", "-ffp-contract=off", "-fno-trapping-math", "-fno-math-errno", "-shared", "-fPIC"),
    # Tried in turn: a compiler may not support the first ones.
    tunings=(("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ()),
)

WORTH_COMPILING = 1 << 22
"""The number of elements from which native code is worth its compilation, which takes 0.1 to 0.2 s, once.

NumPy compares as many elements in a quarter of a second."""

DistanceFunction = Callable[[int, int, int, ctypes.c_void_p], None]


@dataclass(frozen=True, slots=True)
class ArrayDistance:
    """The distance between two arrays; the fields have the meaning that they have in `ParameterDrift`.

    difference_norm, reference_norm: the L2 norms of the differences and of the reference
    largest: the largest finite magnitude of the reference
    """

    max_ulp: int
    max_absolute: float
    difference_norm: float
    reference_norm: float
    largest: float
    differing: int


class _Result(ctypes.Structure):
    """`struct distance` of distance.c."""

    _fields_ = (
        ("difference_squares", ctypes.c_double),
        ("reference_squares", ctypes.c_double),
        ("largest_difference", ctypes.c_double),
        ("largest_reference", ctypes.c_double),
        ("differing", ctypes.c_uint64),
        ("ulp", ctypes.c_uint64),
        ("lone_nan", ctypes.c_uint64),
    )


@functools.cache
def load() -> DistanceFunction | None:
    """Return the native function, or None if it cannot be compiled here."""
    try:
        function = ctypes.CDLL(str(compile_library(SOURCE).path)).numdrift_distance
    except (NumdriftError, OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = None
    native: DistanceFunction = function
    return native


def native_distance(a: NDArray[Any], b: NDArray[Any]) -> ArrayDistance | None:
    """Return the distance of b from the reference a. Return None if native code cannot read these arrays in place."""
    same_form = a.shape == b.shape and a.dtype == b.dtype == np.dtype("<f4")
    if not (same_form and a.dtype.isnative and a.flags.c_contiguous and b.flags.c_contiguous):
        return None
    function = load()
    if function is None:
        return None
    result = _Result()
    function(a.ctypes.data, b.ctypes.data, a.size, ctypes.byref(result))  # type: ignore[arg-type]
    unbounded = bool(result.lone_nan) or math.isinf(result.largest_difference)
    return ArrayDistance(
        max_ulp=NAN_DISTANCE if result.lone_nan else result.ulp,
        max_absolute=math.inf if unbounded else result.largest_difference,
        difference_norm=math.inf if unbounded else math.sqrt(result.difference_squares),
        reference_norm=math.sqrt(result.reference_squares),
        largest=result.largest_reference,
        differing=result.differing,
    )
