"""Ops that native code records: op_records.cpp, compiled with the headers of the torch that is running.

The native code takes a tenth of the time that a dispatch mode of Python takes for each op. It also leaves torch as it
is: while a dispatch mode is active, torch computes some gradients with other ops (`add` where it otherwise executes
`add_`).
Where the library is not compiled yet or does not work, the dispatch mode records.
"""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import torch

from ...compiler import CSource, cached_library
from ...errors import NotAvailable
from ..values.digest import load, native_codes

TESTED = ("2.13",)
"""The versions of torch whose dispatcher the library is known to fit."""


def native_source() -> CSource:
    """Return the source with the flags for the torch that is running. Raises NotAvailable for an untested version."""
    if ".".join(torch.__version__.split(".")[:2]) not in TESTED:
        raise NotAvailable("native recording of ops", f"it was never tried with torch {torch.__version__}")
    folder = Path(torch.__file__).parent
    return CSource(
        Path(__file__).with_name("op_records.cpp"),
        (
            *("-std=c++20", "-O2", "-shared", "-fPIC", f"-I{folder / 'include'}"),
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
            f"-DNUMDRIFT_TORCH={torch.__version__}",  # part of the library's name in the cache
            *("-Wl,--no-as-needed", f"-L{folder / 'lib'}", "-lc10", "-ltorch_cpu", "-lstdc++"),
        ),
    )


class NativeOps:
    """Records the ops of this thread, and those of the threads in which autograd continues it, into a file.

    There is at most one recording in a process. Only the thread that calls `enter` is meant to call `leave`.
    """

    def __init__(self, library: ctypes.CDLL, digest: ctypes.CDLL) -> None:
        self._library = library
        self._digest = digest  # which must not be unloaded before
        self._enter, self._leave = library.numdrift_ops_enter, library.numdrift_ops_leave
        self._phase = library.numdrift_ops_phase
        self._enter.argtypes = [ctypes.c_int, ctypes.c_int64]
        self._leave.restype = ctypes.c_int64
        library.numdrift_ops_failure.restype = ctypes.c_char_p
        self._enter.restype = self._phase.restype = library.numdrift_ops_forget.restype = None

    def enter(self, descriptor: int, step: int) -> None:
        """Begin to append the ops of a step to a file."""
        self._enter(descriptor, step)

    def leave(self) -> int:
        """Write what is pending, and return the number of ops of the step.

        Raises OSError if the file could not be written, and NotAvailable if an op could not be recorded.
        """
        count = int(self._leave())
        if error := self._library.numdrift_ops_error():
            raise OSError(error, os.strerror(error))
        if failure := self._library.numdrift_ops_failure():
            raise NotAvailable("native recording of ops", failure.decode(errors="replace").partition("\n")[0])
        return count

    def phase(self, name: str) -> None:
        """Record the following ops in this phase."""
        self._phase(json.dumps(name).encode())

    def hide(self) -> None:
        """Record no further op of this thread."""
        self._library.numdrift_ops_hide()

    def forget(self) -> None:
        """Record and write nothing more, in a fork."""
        self._library.numdrift_ops_forget()


_installed: list[NativeOps] = []


def native_ops() -> NativeOps | None:
    """Return the native recording of this process, None if the library is not compiled yet.

    Raises NumdriftError or OSError if it does not work here.
    """
    if not _installed:
        library = cached_library(native_source())
        if library is None:
            return None
        digest, reason = load()
        if digest is None:
            raise NotAvailable("native recording of ops", str(reason))
        loaded = ctypes.CDLL(str(library.path))
        _install(loaded, digest)
        _installed.append(NativeOps(loaded, digest))
    return _installed[0]


def _install(library: ctypes.CDLL, digest: ctypes.CDLL) -> None:
    """Register the fallback of the dispatcher, which stays until the process ends. Raises NotAvailable."""
    codes = native_codes()
    names = (ctypes.c_char_p * (len(codes) + 1))(*(name.encode() for name in codes), None)
    plain, copied = ((ctypes.c_uint64 * len(codes))(*row) for row in zip(*codes.values(), strict=True))
    library.numdrift_ops_install.restype = ctypes.c_char_p
    function = ctypes.cast(digest.numdrift_digest_in_parallel, ctypes.c_void_p)
    if error := library.numdrift_ops_install(function, names, plain, copied):
        raise NotAvailable("native recording of ops", error.decode(errors="replace").partition("\n")[0])
