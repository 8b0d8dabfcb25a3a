"""Distance between the parameters of two runs at one step.

    relative_l2 = ||a - b||_2 / ||a||_2        (a is the reference; accumulated in float64)

with 0 / 0 = 0 and x / 0 = inf. Two NaNs and two equal infinities are 0 apart, and a non-finite element of the reference
does not count in ||a||. An element that is non-finite on one side only, or differently on both, makes `max_absolute`
and `relative_l2` infinite.

Arrays of different dtypes are compared in float64. Their `max_ulp` is in units of the coarser dtype (fewer mantissa
bits): a float64 oracle is rounded to float32 before it is compared with a float32 run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distance import WORTH_COMPILING, ArrayDistance, native_distance
from .loss_distance import absolute_difference, differs
from .ulp import paired_chunks, ulp_distance

_ULP_TYPES = (np.float16, np.float32, np.float64)


@dataclass(frozen=True, slots=True)
class ParameterDrift:
    """The drift of one parameter from the reference.

    shape, dtype: those of the reference.
    max_ulp: the largest distance in ULP; None unless both sides are float16, float32 or float64. It is astronomical for
        elements near zero, and more so for those that cross zero, however small the drift: there are 1.6 billion
        numbers of float32 between -1e-9 and 1e-9.
    differing: the number of elements with different bits; all NaNs count as equal, -0.0 and 0.0 do not.
    numel: the total number of elements.
    scale_ulp: `max_absolute` in ULP of the reference's largest finite value. One such ULP is about the rounding error
        of a sum over the tensor. None if max_ulp is None, or if the reference is all zero.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    max_ulp: int | None
    relative_l2: float
    max_absolute: float
    differing: int
    numel: int
    scale_ulp: float | None = None


@dataclass(frozen=True, slots=True)
class ParameterMismatch:
    """A parameter whose shape or dtype differs between the sides. If only the dtype differs, it also has a drift."""

    name: str
    shape_a: tuple[int, ...]
    shape_b: tuple[int, ...]
    dtype_a: str
    dtype_b: str


@dataclass(frozen=True, slots=True)
class ParameterComparison:
    """The drift of all parameters, the largest `relative_l2` first, then by name.

    The other fields are sorted by name.
    """

    drifts: tuple[ParameterDrift, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    mismatches: tuple[ParameterMismatch, ...]


def parameter_drift(a: Mapping[str, NDArray[Any]], b: Mapping[str, NDArray[Any]]) -> ParameterComparison:
    """Compare the parameters b with the reference a, name by name.

    Missing names and different shapes are reported in the result and raise no error. Integers, booleans and complex
    numbers are compared without ULP.
    """
    both = sorted(a.keys() & b.keys())
    same_shape = [name for name in both if a[name].shape == b[name].shape]
    native = sum(a[name].size for name in same_shape) >= WORTH_COMPILING
    drifts = [_drift(name, a[name], b[name], native=native) for name in same_shape]
    mismatches = []
    for name in both:
        x, y = a[name], b[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            mismatches.append(ParameterMismatch(name, x.shape, y.shape, str(x.dtype), str(y.dtype)))
    return ParameterComparison(
        drifts=tuple(sorted(drifts, key=lambda drift: (-drift.relative_l2, drift.name))),
        only_a=tuple(sorted(a.keys() - b.keys())),
        only_b=tuple(sorted(b.keys() - a.keys())),
        mismatches=tuple(mismatches),
    )


def _drift(name: str, a: NDArray[Any], b: NDArray[Any], *, native: bool) -> ParameterDrift:
    # Distances are measured in ULP of the coarser dtype, if both dtypes have ULP.
    has_ulp = a.dtype.type in _ULP_TYPES and b.dtype.type in _ULP_TYPES
    unit = min(a.dtype, b.dtype, key=lambda dtype: dtype.itemsize).newbyteorder("=") if has_ulp else None
    distance = (native_distance(a, b) if native else None) or _distance(a, b, unit)
    return ParameterDrift(
        name=name,
        shape=a.shape,
        dtype=str(a.dtype),
        max_ulp=None if unit is None else distance.max_ulp,
        relative_l2=_ratio(distance.difference_norm, distance.reference_norm),
        max_absolute=distance.max_absolute,
        differing=distance.differing,
        numel=a.size,
        scale_ulp=(
            None if unit is None or not distance.largest else distance.max_absolute / _spacing(distance.largest, unit)
        ),
    )


def _distance(a: NDArray[Any], b: NDArray[Any], unit: np.dtype[Any] | None) -> ArrayDistance:
    """Measure the distance with NumPy; `max_ulp` is in units of the dtype `unit`, and 0 if that is None."""
    ulp, absolute, differing, largest = 0, 0.0, 0, 0.0
    reference_norms, difference_norms = [0.0], [0.0]
    for x, y in paired_chunks(a, b):
        if unit is not None:
            with np.errstate(over="ignore", under="ignore"):
                ulp = max(ulp, int(ulp_distance(x.astype(unit, copy=False), y.astype(unit, copy=False)).max()))
        both_real = x.dtype.kind == "f" and y.dtype.kind == "f"
        unequal = differs(x, y) if both_real else (x != y) & ~(np.isnan(x) & np.isnan(y))
        differing += int(np.count_nonzero(unequal))
        if np.can_cast(x.dtype, np.int64) and np.can_cast(y.dtype, np.int64):
            # Unsigned subtraction wraps around to the exact distance even if the signed one overflows.
            left, right = x.astype(np.int64), y.astype(np.int64)
            wrapped = np.maximum(left, right).view(np.uint64) - np.minimum(left, right).view(np.uint64)
            difference = wrapped.astype(np.float64)
        else:
            difference = absolute_difference(_wide(x), _wide(y))
        absolute = max(absolute, float(difference.max()))
        difference_norms.append(_norm(difference))
        magnitudes = np.abs(_wide(x)[np.isfinite(x)])
        largest = max(largest, float(magnitudes.max(initial=0.0)))
        reference_norms.append(_norm(magnitudes))
    return ArrayDistance(ulp, absolute, math.hypot(*difference_norms), math.hypot(*reference_norms), largest, differing)


def _spacing(value: float, unit: np.dtype[Any]) -> float:
    """Return the distance from a magnitude to the next larger number of a format.

    A subnormal magnitude counts as the smallest normal number. A magnitude above half of the largest number counts as
    that half.
    """
    limits = np.finfo(unit)
    return float(np.spacing(unit.type(min(max(value, float(limits.tiny)), float(limits.max) / 2))))


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64, copy=False)


def _norm(magnitudes: NDArray[np.float64]) -> float:
    """Return the L2 norm, scaled by a power of two so that squares neither overflow nor vanish."""
    largest = float(magnitudes.max(initial=0.0))
    if largest == 0.0 or math.isinf(largest):
        return largest
    exponent = math.frexp(largest)[1]
    scaled = np.ldexp(magnitudes, -exponent)
    value = math.sqrt(float(np.sum(scaled * scaled)))
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return math.inf


def _ratio(difference: float, reference: float) -> float:
    if difference == 0.0 or math.isinf(difference):
        return difference
    return difference / reference if reference else math.inf
