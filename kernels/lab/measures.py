"""The distance of a kernel's results from the exact results.

With o a result, r the exact one and ulp the spacing of the output's format at r (see `formats`):

    error   = |o - r| / ulp(r)                                       for each element
    rho     = ||o - r|| / (rms_m ||f(x(1 + u s_m)) - f(x)|| + u ||r||)
    bias    = mean((o - r) / ulp(r)),   z = mean(sign(o - r)) sqrt(n)

rho compares the error with the effect of rounding the inputs (u: unit roundoff of the format, s_m: random signs; u |r|
counts as half the format's smallest number where it is less). A kernel with a rho of about 1 is as accurate as the
inputs allow; a rho above 16 is a fault.

A |z| above 6 is a bias, which rounding to nearest does not have. z is measured along two axes, up (o - r) and away from
zero (o - r times the sign of r), because a kernel that truncates has no upward bias. n counts only errors above 1/20
ULP, and counts equal errors of equal results once: inputs that repeat, or that are so small that only one result is
possible, are not evidence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .formats import INTEGERS, Float64s, Format
from .reference import Expected

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
"""The quantiles of the errors that are recorded, as shares of the elements."""

BIASED = 6.0
"""The |z| above which the sign of the errors is not due to chance."""

NEGLIGIBLE = 0.05  # ULP
GRAIN = 1 / 64  # ULP; errors of one result that are closer than this count as equal


@dataclass(frozen=True, slots=True)
class Bias:
    """The mean error in ULP along one axis, and how far the errors' signs are from chance, in standard deviations.

    `towards` is the direction that the sign of z indicates: up or down, from zero or to zero.
    """

    ulp: float
    z: float
    towards: str


@dataclass(frozen=True, slots=True)
class Measures:
    """One output of one kernel on one case.

    finite: the number of elements with an error: their reference is finite, and their result finite or the infinity of
        the same sign
    errors: the errors of these elements in ULP, at `QUANTILES`; empty if there are no such elements
    differs: the share of all elements whose bits differ from aten's; None if aten has no result
    mismatches: counts of elements of the wrong kind (NaN, an infinity or finite), by actual and expected kind
    worst: the measured and the expected value at the largest error
    """

    output: str
    elements: int
    finite: int
    errors: tuple[float, ...]
    rho: float | None
    up: Bias
    away: Bias
    differs: float | None
    mismatches: dict[str, int]
    worst: tuple[float, float] | None

    def error(self, quantile: float) -> float:
        """Return the error in ULP at one of `QUANTILES`, or 0 if no element has an error."""
        return self.errors[QUANTILES.index(quantile)] if self.errors else 0.0

    @property
    def bias(self) -> Bias:
        """The stronger of the two biases."""
        return self.up if abs(self.up.z) > abs(self.away.z) else self.away


@np.errstate(over="ignore", invalid="ignore")
def measure(got: Float64s, form: Format, expected: Expected, differs: float | None) -> Measures:
    """Measure one output of a kernel. `got` are its elements at the positions of `expected`, as float64 numbers; `form`
    is the format in which the kernel returned them."""
    # Errors are measured where the reference is finite, and the result is finite or an infinity of the right sign.
    both = np.isfinite(expected.values) & ~np.isnan(got)
    both &= np.isfinite(got) | (np.sign(got) == np.sign(expected.values))
    o, r, remainder = got[both], expected.values[both], expected.remainders[both]
    if form is INTEGERS:
        signed = o - r
    else:
        # Numbers that overflow the format count as 2**(emax + 1), so two such numbers are equal.
        near_o, near_r = (np.clip(values, -form.beyond, form.beyond) for values in (o, r))
        difference = (near_o - near_r) - np.where(np.abs(r) <= form.beyond, remainder, 0.0)
        signed = np.where(difference == 0, 0.0, difference / form.ulp(near_r))
    errors = np.abs(signed)
    worst = int(errors.argmax()) if errors.size else None

    # Count the elements whose actual and expected kinds (nan, an infinity or a finite number) differ.
    counts = {}
    should = _kinds(rounded_to(expected.values, form))
    for is_name, is_kind in _kinds(got).items():
        for should_name, should_kind in should.items():
            count = int((is_kind & should_kind).sum())
            if is_name != should_name and count:
                counts[f"{is_name} where {should_name}"] = count
    return Measures(
        output=expected.name,
        elements=len(got),
        finite=int(errors.size),
        errors=tuple(float(quantile) for quantile in np.quantile(errors, QUANTILES, method="higher"))
        if errors.size
        else (),
        rho=_rho(got, expected, form),
        up=_bias(signed, o, ("up", "down")),
        away=_bias((signed * np.sign(r))[r != 0], o[r != 0], ("from 0", "to 0")),
        differs=differs,
        mismatches=counts,
        worst=None if worst is None else (float(o[worst]), float(r[worst])),
    )


def _kinds(values: Float64s) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    return {
        "nan": np.isnan(values),
        "inf": np.isposinf(values),
        "-inf": np.isneginf(values),
        "finite": np.isfinite(values),
    }


def rounded_to(values: Float64s, form: Format) -> Float64s:
    """Return infinities for values that overflow the format, and other values unchanged."""
    if form is INTEGERS or math.isinf(form.beyond):
        return values
    limit = form.largest + (form.beyond - form.largest) / 2
    return np.where(np.abs(values) >= limit, np.copysign(np.inf, values), values)


def _rho(got: Float64s, expected: Expected, form: Format) -> float | None:
    if expected.sensitivity is None or form is INTEGERS:
        return None
    usable = np.isfinite(got) & np.isfinite(expected.values) & np.isfinite(expected.sensitivity)
    if not usable.any():
        return None
    o, r, moved = got[usable], expected.values[usable], expected.sensitivity[usable]
    # without scaling, squares of large results would overflow, and those of small results vanish
    scale = float(np.abs(r).max()) or 1.0
    error = float(np.linalg.norm((o - r) / scale))
    rounding = np.maximum(form.unit_roundoff * np.abs(r), form.smallest / 2)
    room = float(np.linalg.norm(moved / scale)) + float(np.linalg.norm(rounding / scale))
    if error == 0:
        return 0.0
    return error / room if room > 0 and math.isfinite(error / room) else None


def _bias(signed: Float64s, got: Float64s, ends: tuple[str, str]) -> Bias:
    """Return the mean and z of errors along one axis. `ends` names its two directions; `got` are the results."""
    finite = np.isfinite(signed)
    if not finite.any():
        return Bias(0.0, 0.0, ends[0])
    counted = finite & (np.abs(signed) > NEGLIGIBLE)
    grain = np.round(np.clip(signed[counted], -1e6, 1e6) / GRAIN)
    distinct = np.unique(np.stack([got[counted], grain]), axis=1)[1]
    z = float(np.sign(distinct).mean() * math.sqrt(distinct.size)) if distinct.size else 0.0
    return Bias(float(signed[finite].mean()), z, ends[z < 0])
