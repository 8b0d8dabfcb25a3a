"""digest.c as a function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

from ..compiler import CSource, compile_library
from ..errors import NumdriftError

SOURCE = CSource(
    Path(__file__).with_name("digest.c"),
    flags=(
        "-O3",
        "-fassociative-math",
        "-ffinite-math-only",
        "-fno-signed-zeros",
        "-fno-trapping-math",
        "-fno-math-errno",
        "-shared",
        "-fPIC",
    ),
    tunings=(("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ()),
)

DigestFunction = Callable[[int, int, int], None]


def load() -> tuple[DigestFunction | None, str | None]:
    """The function (address of items, number of items, address of records), or None and the reason."""
    try:
        function = ctypes.CDLL(str(compile_library(SOURCE).path)).numdrift_digest
    except (NumdriftError, OSError, AttributeError) as error:
        return None, " ".join(str(error).split())
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = None
    return function, None
