"""The reduction of a sweep in C: `kernels/lab/sweep.c`, compiled on first use."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from numdrift.harness.compiler import CSource, compile_library
from numdrift.harness.errors import CompileError, NotAvailable

from .sweep import Reduction
from .sweep_bins import WORST, WORST_INPUT, reduce_run
from .sweep_domain import Encoding

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
"""No flag lets the compiler change a result: -fno-trapping-math concerns only the exception flags."""

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
    """`sweep_bins.reduce_run` in C, for one format; the bits are the same."""

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
        kept = np.zeros(1, _WORST_LISTS)
        self.function(
            got.ctypes.data,
            want.ctypes.data,
            len(got),
            first,
            ctypes.byref(self.about),
            record.ctypes.data,
            kept.ctypes.data,
        )
        found = np.zeros(int(np.count_nonzero(kept["ulp"])), WORST_INPUT)
        found["ulp"], found["at"] = kept["ulp"][0, : len(found)], kept["at"][0, : len(found)]
        return found


def native_reduction(encoding: Encoding) -> NativeReduction:
    """Compile and load it. Raises NotAvailable or CompileError."""
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
    """The reduction in C and "", or the one in numpy and why."""
    try:
        return native_reduction(encoding), ""
    except (NotAvailable, CompileError) as error:
        return reduce_run, f"errors are counted with numpy, which is slower: {error}"
