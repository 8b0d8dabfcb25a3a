"""The source files of kernels, and the compiler flags for those in C. This module does not import torch."""

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
"""Flags with which every operation rounds as written, and an undefined symbol is an error at compile time."""

TUNINGS = (("-march=native",), ())
"""Flags for the instructions of this CPU, including fused multiply-add, if the compiler supports them."""

SUFFIXES = (".c", ".py")


def shipped_source(name: str, *more: str) -> CSource:
    """Return one of the C files in this folder; `more` are further flags."""
    return CSource(Path(__file__).with_name(name), (*FLAGS, *more), TUNINGS)


def user_source(path: Path) -> CSource:
    """Return a user's C file, compiled as the shipped ones are."""
    return CSource(path, FLAGS, TUNINGS)


def checked_path(path: Path) -> Path:
    """Return the absolute path of a user's file. Raises UsageError if it is missing, or is neither C nor Python."""
    path = path.expanduser().absolute()
    if path.suffix not in SUFFIXES:
        raise UsageError(f"{path} is not a kernel: a kernel is a file that ends in {' or '.join(SUFFIXES)}")
    if not path.is_file():
        raise UsageError(f"{path} {'is not a file' if path.exists() else 'does not exist'}; name a .c or .py file")
    return path
