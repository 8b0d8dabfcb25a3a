"""Commands of the list: each in a group of processes of its own, with a limit, and ended with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..performance.memory import descendants

ROOT = Path(__file__).parents[2]
NUMDRIFT = ("-m", "numdrift")

GRACE = 8.0
"""Seconds that a command has to end by itself once it is asked to; numdrift gives its trainings 5."""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended: `code` is None where its time was over."""

    code: int | None
    out: str
    err: str
    seconds: float

    def why(self) -> str:
        """Say in a line how it ended."""
        last = next((line for line in reversed(self.err.splitlines()) if line.strip()), "")
        how = f"was ended after {self.seconds:.0f} s" if self.code is None else f"exit code {self.code}"
        return f"{how}: {last.strip()[:300]}" if last else how


class Commands:
    """Starts commands of this Python in the repository's root until a moment of the monotonic clock."""

    def __init__(self, variables: Mapping[str, str], deadline: float, *, slower: float = 1.0) -> None:
        self._variables = variables
        self._deadline = deadline
        self._slower = slower
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._stopped = False

    @property
    def left(self) -> float:
        """Seconds that are left for all of them; none once they were stopped."""
        return 0.0 if self._stopped else max(0.0, self._deadline - time.monotonic())

    def numdrift(self, *words: str, limit: float, variables: Mapping[str, str] | None = None) -> Done:
        return self.python(*NUMDRIFT, *words, limit=limit, variables=variables)

    def python(self, *words: str, limit: float, variables: Mapping[str, str] | None = None) -> Done:
        """Run this Python to its end, or for `limit` seconds on CUDA and as many times more as the device is slower."""
        environment = os.environ | dict(self._variables) | dict(variables or {})
        seconds = min(limit * self._slower, self.left)
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
            )
            with self._watched(process.pid):
                try:
                    code: int | None = process.wait(seconds)
                except subprocess.TimeoutExpired:
                    end(process)
                    code = None
            took = time.monotonic() - began
            out.seek(0), err.seek(0)
            return Done(code, out.read(), err.read(), took)

    def stop(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for pid in running:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM)

    @contextmanager
    def _watched(self, pid: int) -> Iterator[None]:
        with self._lock:
            self._running.add(pid)
            stopped = self._stopped
        if stopped:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGTERM)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(pid)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a command, first as Ctrl-C does, then for good with all that it has started."""
    begun = descendants(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    for pid in [*begun, process.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
