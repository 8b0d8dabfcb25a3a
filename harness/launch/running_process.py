"""One process under way, from its start until it has ended in one way or another."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .guest_process import Launch, start
from .tail import Tail

GRACE_SECONDS = 5.0
"""How long a process may take to end after it was asked to, before it is killed."""

OOM_EVENTS = Path("/sys/fs/cgroup/memory.events")

Ended = Literal["exited", "timeout", "interrupted", "out-of-memory", "with-another"]
"""By itself, or by us: past its time, by Ctrl-C, for lack of memory, because another rank of its run had failed."""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended: by itself or ended by us; `returncode` is negative for a signal.

    Of a run of several ranks it is how the run ended: `ranks` has the end of each, and `rank` is the one that the rest
    is about, the first that failed. `at` is the time of the end as `time.time()` has it, as far as we saw it.
    """

    returncode: int
    why: Ended
    seconds: float
    at: float = 0.0
    rank: int = 0
    ranks: tuple[ProcessEnd, ...] = ()


class Running:
    """One process under way."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.tail = Tail(launch.events)
        self.began = time.monotonic()
        self._oom_kills = _oom_kills()
        self._process: subprocess.Popen[bytes] = start(launch)

    def poll(self) -> ProcessEnd | None:
        """The way it ended, or None while it runs; a run past its time is ended here."""
        code = self._process.poll()
        elapsed = time.monotonic() - self.began
        if code is None and self.launch.timeout is not None and elapsed > self.launch.timeout:
            return self.stop(signal.SIGTERM, "timeout")
        if code is None:
            return None
        killed_for_memory = code == -signal.SIGKILL and _oom_kills() > self._oom_kills
        return ProcessEnd(code, "out-of-memory" if killed_for_memory else "exited", elapsed, time.time())

    def stop(self, how: signal.Signals, why: Ended) -> ProcessEnd:
        """Ask the process and all that it started to end, then kill what is left."""
        self.ask(how)
        return self.end(why, GRACE_SECONDS)

    def ask(self, how: signal.Signals) -> None:
        """Send a signal to the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to the script's process alone."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def end(self, why: Ended, patience: float) -> ProcessEnd:
        """Wait for the end of a process that was asked to; after so many seconds kill what is left."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.ask(signal.SIGKILL)
        code = self._process.wait()
        return ProcessEnd(code, why, time.monotonic() - self.began, time.time())


def _oom_kills() -> int:
    """How often the kernel has killed something in this control group for lack of memory."""
    with suppress(OSError, ValueError):
        for line in OOM_EVENTS.read_text().splitlines():
            key, _, count = line.partition(" ")
            if key == "oom_kill":
                return int(count)
    return 0
