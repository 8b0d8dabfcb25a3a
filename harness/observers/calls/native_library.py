"""The library that records ops for one training, which a long training compiles in the background."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...compiler import cache_folder, cached_library, compile_library, library_place
from ...errors import CompileError, NumdriftError
from .native_ops import NativeOps, native_ops, native_source

COMPILE_AFTER = 10.0
"""Seconds of recording after which the library is compiled. That takes 20 seconds of processor time and 0.5 GiB of
memory, from which shorter trainings gain nothing."""

REMEMBERED = 86_400
"""Seconds for which no training compiles the library again after it did not compile."""

COMPILE_SECONDS = 600
CANCEL_SECONDS = 5


class LibraryBuild:
    """A compilation of the library in the background, with the lowest priority.

    It ends early if it is cancelled. Processes that need the same library wait for the first of them.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.reason = ""
        """Why there is no library; "" if there is one, or may be one later."""
        self._cancelled = False
        self._process = os.getpid()
        self._compiler: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._build, name="numdrift-native-ops", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop the compiler, and wait until its files are gone. Does nothing in a fork, whose compiler it is not."""
        self._cancelled = True
        if self._compiler is not None and os.getpid() == self._process:
            with suppress(OSError):
                os.killpg(self._compiler.pid, signal.SIGKILL)
            self._thread.join(CANCEL_SECONDS)

    def _build(self) -> None:
        try:
            source = native_source()
            cached_library(source)  # makes the folder
            with (cache_folder() / "op_records.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                compile_library(source, self._execute)
        except (NumdriftError, OSError) as error:
            self.reason = " ".join(str(error).split())
            if isinstance(error, CompileError) and not self._cancelled:
                with suppress(NumdriftError, OSError):
                    _failure_file().write_text(self.reason)
        self.done.set()

    def _execute(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self._compiler = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=os.environ | {"LC_ALL": "C"},
            text=True,
            errors="replace",
            process_group=0,  # gcc is a driver, whose compiler must be killed with it
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self._compiler.pid, 19)
        if self._cancelled:
            os.killpg(self._compiler.pid, signal.SIGKILL)
        try:
            _, errors = self._compiler.communicate(timeout=COMPILE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._compiler.pid, signal.SIGKILL)
            self._compiler.communicate()
            raise
        return subprocess.CompletedProcess(command, self._compiler.returncode, "", errors)


def _failure_file() -> Path:
    """Return the file that says why the library does not compile. Its name is another for another compiler or torch."""
    return library_place(native_source()).with_suffix(".txt")


def remembered_failure() -> str:
    """Return why the library did not compile lately, "" if it did or was not compiled."""
    try:
        file = _failure_file()
        return file.read_text() if time.time() - file.stat().st_mtime < REMEMBERED else ""
    except (NumdriftError, OSError):
        return ""


class NativeLibrary:
    """The library for one training: it is looked for at each step, and compiled if the training takes long."""

    def __init__(self) -> None:
        self.reason = ""
        """Why the library does not work here, "" if it may."""
        self._began = time.monotonic()
        self._build: LibraryBuild | None = None
        self._ops: NativeOps | None = None
        self._looked = False

    def ops(self) -> NativeOps | None:
        """Return the native recording once there is one."""
        if self._ops is None and not self.reason and self._may_be_there():
            self._looked = True
            try:
                self._ops = native_ops()
            except (NumdriftError, OSError) as error:
                self.reason = " ".join(str(error).split())
        return self._ops

    def close(self) -> None:
        """Stop a compilation that is still running."""
        if self._build is not None and not self._build.done.is_set():
            self._build.cancel()

    def _may_be_there(self) -> bool:
        if not self._looked:
            return True
        if self._build is None:
            if time.monotonic() - self._began >= COMPILE_AFTER:
                self.reason = remembered_failure()
                self._build = None if self.reason else LibraryBuild()
            return False
        if self._build.done.is_set():
            self.reason = self._build.reason
            return not self.reason
        return False
