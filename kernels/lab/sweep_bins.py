"""The data that a sweep keeps: a record for each bin of inputs, and the worst inputs overall.

The error of a result o against the exact result r is (o - r) / ulp(r), where ulp(r) is the spacing of the
format's numbers around r: 2 ** (max(floor(log2 |r|), least) - precision + 1). It is measured where o is finite
and r rounds to a finite number. Elsewhere o and r disagree unless both are NaN or the same infinity.

Sums have sixteen lanes; the last four bits of an input's pattern are the number of its lane. The order of the
additions, and thus every bit of the sum, is the same for `reduce_run` in this module and for `kernels/lab/sweep.c`.

Source of the definition: J.-M. Muller, On the definition of ulp(x), INRIA RR-5504, 2005 (Goldberg's form).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numdrift.harness.compiler import CSource, compile_library
from numdrift.harness.errors import CompileError, NotAvailable

from .sweep_domain import Encoding

LANES = 16
WORST = 10

COUNTS = ("count", "measured", "not_correct", "above_half", "above_one", "above_two", "disagree")

BIN = np.dtype(
    [(name, np.int64) for name in COUNTS]
    + [("max_at", np.int64), ("disagree_at", np.int64), ("max_ulp", np.float64)]
    + [("ulp", np.float64, (LANES,)), ("bias", np.float64, (LANES,))]
)
"""Counts of inputs: all inputs; measured ones; those whose result is not the correctly rounded one; those whose error
is above 0.5, 1 and 2 ULP; and those where kernel and reference disagree. Then the bit patterns of the inputs with the
largest error and with the first disagreement (-1 for none), the largest error, and the sums of |error| and of error."""

WORST_INPUT = np.dtype([("ulp", np.float64), ("at", np.int64)])


Reduction = Callable[[Encoding, NDArray[np.float32], NDArray[np.float64], int, NDArray[Any]], NDArray[Any]]
"""Adds a run of inputs to its bin, as `reduce_run` does."""


def empty_bins(count: int) -> NDArray[Any]:
    """Return empty records of bins, an array [count] of `BIN`."""
    bins = np.zeros(count, BIN)
    bins["max_at"] = bins["disagree_at"] = -1
    return bins


def no_worst() -> NDArray[Any]:
    """Return an empty list of worst inputs, an array [0] of `WORST_INPUT`."""
    return np.zeros(0, WORST_INPUT)


def merged_worst(*lists: NDArray[Any]) -> NDArray[Any]:
    """Return the `WORST` inputs with the largest errors, largest first; among equal errors, the smaller bit pattern
    first."""
    candidates = np.concatenate(lists)
    return candidates[np.lexsort((candidates["at"], -candidates["ulp"]))][:WORST]


@dataclass(frozen=True, slots=True)
class RunErrors:
    """Errors of consecutive inputs. `signed` is in ULP. Where `finite` is False, `signed` is 0, and `agree` says
    whether both results are NaN or the same infinity."""

    signed: NDArray[np.float64]
    finite: NDArray[np.bool_]
    agree: NDArray[np.bool_]
    correct: NDArray[np.bool_]


def errors_of(encoding: Encoding, got: NDArray[np.float32], want: NDArray[np.float64]) -> RunErrors:
    """Compare a kernel's results, which float32 represents exactly, with those of the reference, element by element."""
    # `scale` is 1 / ulp(r), from the exponent bits of r. It is a power of two, so neither product below rounds.
    exponent = (want.view(np.uint64) >> np.uint64(52)) & np.uint64(0x7FF)
    bounded = np.maximum(exponent, np.uint64(1023 + encoding.least))
    scale = ((np.uint64(2045 + encoding.precision) - bounded) << np.uint64(52)).view(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        wide = got.astype(np.float64)
        finite = (np.abs(wide) <= encoding.largest) & (np.abs(want) < encoding.overflow)
        signed = np.where(finite, wide * scale - want * scale, 0.0)
        correct = finite & (wide * scale == np.rint(want * scale))
    both_nan = np.isnan(wide) & np.isnan(want)
    above = (wide > encoding.largest) & (want >= encoding.overflow)
    below = (wide < -encoding.largest) & (want <= -encoding.overflow)
    return RunErrors(signed, finite, both_nan | above | below, correct)


def reduce_run(
    encoding: Encoding,
    got: NDArray[np.float32],
    want: NDArray[np.float64],
    first: int,
    record: NDArray[Any],
) -> NDArray[Any]:
    """Add consecutive inputs of one bin to its record, and return the worst of them.

    got, want: the results of the kernel and of the reference for the bit patterns from `first` on, each an array [n].
    record: the bin's record, an array [1] of `BIN`, which is updated in place.
    """
    errors = errors_of(encoding, got, want)
    ulp = np.abs(errors.signed)
    counted = (
        np.full(len(ulp), True),
        errors.finite,
        errors.finite & ~errors.correct,
        ulp > 0.5,
        ulp > 1,
        ulp > 2,
        ~(errors.finite | errors.agree),
    )
    for name, flags in zip(COUNTS, counted, strict=True):
        record[name] += np.count_nonzero(flags)
    _add_in_lanes(record["ulp"][0], ulp, first)
    _add_in_lanes(record["bias"][0], errors.signed, first)
    place = int(ulp.argmax())
    if ulp[place] > record["max_ulp"][0]:
        record["max_ulp"], record["max_at"] = ulp[place], first + place
    if record["disagree_at"][0] < 0 and counted[-1].any():
        record["disagree_at"] = first + int(counted[-1].argmax())
    # Sort only inputs that may be among the worst.
    places = np.flatnonzero(ulp)
    if len(places) > WORST:
        least = np.partition(ulp[places], -WORST)[-WORST]
        places = places[ulp[places] >= least]
    worst = np.zeros(len(places), WORST_INPUT)
    worst["ulp"], worst["at"] = ulp[places], first + places
    return merged_worst(worst)


def lane_sums(lanes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum an array [..., LANES] over its lanes, in a fixed order."""
    total = np.zeros(lanes.shape[:-1])
    for lane in range(LANES):
        total += lanes[..., lane]
    return total


def _add_in_lanes(lanes: NDArray[np.float64], values: NDArray[np.float64], first: int) -> None:
    front = first % LANES
    rows = -(-(front + len(values)) // LANES)
    padded = np.zeros((rows + 1) * LANES)
    padded[:LANES] = lanes
    padded[LANES + front : LANES + front + len(values)] = values
    # Along the first axis numpy adds row by row; it sums pairwise only along the last axis.
    lanes[:] = np.add.reduce(padded.reshape(-1, LANES), axis=0)


# The same reduction in C: `kernels/lab/sweep.c`, compiled on first use.

SOURCE = CSource(
    path=Path(__file__).with_name("sweep.c"),
    flags=(
        "-O3",
        "-fno-fast-math",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fPIC",
        "-shared",
        "-Wl,--no-undefined",
    ),
    tunings=(("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ()),
)
"""The C source of the reduction. No flag changes a result: -fno-trapping-math affects only the exception flags."""

_WORST_LISTS = np.dtype([("ulp", np.float64, (WORST,)), ("at", np.int64, (WORST,))])


class _CFormat(ctypes.Structure):
    _fields_ = (
        ("precision", ctypes.c_int64),
        ("least", ctypes.c_int64),
        ("largest", ctypes.c_double),
        ("overflow", ctypes.c_double),
    )


@dataclass(frozen=True, slots=True)
class NativeReduction:
    """`reduce_run` in C, for one format; the results have the same bits."""

    function: Any
    about: _CFormat

    def __call__(
        self,
        encoding: Encoding,
        got: NDArray[np.float32],
        want: NDArray[np.float64],
        first: int,
        record: NDArray[Any],
    ) -> NDArray[Any]:
        assert got.flags.c_contiguous and want.flags.c_contiguous and record.flags.c_contiguous
        lists = np.zeros(1, _WORST_LISTS)
        self.function(
            got.ctypes.data,
            want.ctypes.data,
            len(got),
            first,
            ctypes.byref(self.about),
            record.ctypes.data,
            lists.ctypes.data,
        )
        worst = np.zeros(int(np.count_nonzero(lists["ulp"])), WORST_INPUT)
        worst["ulp"], worst["at"] = lists["ulp"][0, : len(worst)], lists["at"][0, : len(worst)]
        return worst


def native_reduction(encoding: Encoding) -> NativeReduction:
    """Compile and load the reduction. Raises NotAvailable or CompileError."""
    path = str(compile_library(SOURCE).path)
    try:
        function = ctypes.CDLL(path).numdrift_sweep_run
    except (OSError, AttributeError) as error:
        raise NotAvailable("the sweep in C", " ".join(str(error).split())) from error
    integer, pointer = ctypes.c_int64, ctypes.c_void_p
    function.argtypes = [pointer, pointer, integer, integer, pointer, pointer, pointer]
    function.restype = None
    about = _CFormat(encoding.precision, encoding.least, encoding.largest, encoding.overflow)
    return NativeReduction(function, about)


def fastest_reduction(encoding: Encoding) -> tuple[Reduction, str]:
    """Return the reduction in C and "", or the reduction in numpy and the reason."""
    try:
        return native_reduction(encoding), ""
    except (NotAvailable, CompileError) as error:
        return reduce_run, f"errors are counted with numpy, which is slower: {error}"
