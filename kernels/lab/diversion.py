"""What a user's kernel prints, kept out of the lab's own output."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what is printed in this process, by C code too, to standard error instead of standard output."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        flush_c()
        os.dup2(kept, 1)
        os.close(kept)


def flush_c() -> None:
    """Write out what C code has printed and its library still holds."""
    ctypes.CDLL(None).fflush(None)
