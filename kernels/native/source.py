"""The files that kernels are in, and how those in C are compiled. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from numdrift.harness.compiler import CSource
from numdrift.harness.errors import UsageError

FLAGS = (
    "-O3",
    "-fno-fast-math",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-Werror=implicit-function-declaration",
    "-Wl,--no-undefined",
)
"""Every operation rounds where it stands; what is not defined is an error at once."""

TUNINGS = (("-march=native",), ())
"""With the instructions of this CPU, fused multiply-add among them, where the compiler knows it."""

SUFFIXES = (".c", ".py")


def shipped_source(name: str, *more: str) -> CSource:
    """One of the C files beside this one; `more` are further flags."""
    return CSource(Path(__file__).with_name(name), (*FLAGS, *more), TUNINGS)


def user_source(path: Path) -> CSource:
    """A user's C file, compiled as the shipped ones are."""
    return CSource(path, FLAGS, TUNINGS)


def checked_path(path: Path) -> Path:
    """The absolute path of a user's file. Raises UsageError when it is not there or neither C nor Python."""
    path = path.expanduser().absolute()
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is no kernel: a kernel is a file that ends in {' or '.join(SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"{path} is {'no file' if path.exists() else 'not there'}; name a .c or .py file")
    return path
