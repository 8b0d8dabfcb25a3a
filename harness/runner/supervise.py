"""Running processes one after the other or side by side, until each has ended in one way or another."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from .launch import Launch, start
from .tail import Progress, Tail

POLL_SECONDS = 0.05
GRACE_SECONDS = 5.0
"""How long a process may take to end after it was asked to, before it is killed."""

OOM_EVENTS = Path("/sys/fs/cgroup/memory.events")

Ended = Literal["exited", "timeout", "interrupted", "out-of-memory"]


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """How a process ended: by itself or ended by us; `returncode` is negative for a signal."""

    returncode: int
    why: Ended
    seconds: float


class Reporter(Protocol):
    """Who is told how the processes get on."""

    def started(self, name: str) -> None: ...

    def progressed(self, name: str, progress: Progress) -> None: ...

    def ended(self, name: str, end: ProcessEnd) -> None: ...


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
        return ProcessEnd(code, "out-of-memory" if killed_for_memory else "exited", elapsed)

    def stop(self, how: signal.Signals, why: Ended) -> ProcessEnd:
        """Ask the process and all that it started to end, then kill what is left."""
        self._signal(how)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self._signal(signal.SIGKILL)
        return ProcessEnd(self._process.wait(), why, time.monotonic() - self.began)

    def _signal(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)


def supervise(
    launches: Sequence[Launch],
    reporter: Reporter,
    finished: Callable[[Launch, ProcessEnd], None],
    jobs: int = 1,
) -> bool:
    """Run every launch, at most `jobs` at a time; `finished` is called as each ends.

    Gives False when Ctrl-C ended it early: what runs is then stopped, what waits is not started.
    """
    waiting, running = deque(launches), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(Running(waiting.popleft()))
                reporter.started(running[-1].launch.name)
            for one in list(running):
                end = one.poll()
                if one.tail.advance():
                    reporter.progressed(one.launch.name, one.tail.progress)
                if end is not None:
                    running.remove(one)
                    _close(one, end, reporter, finished)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        for one in running:
            _close(one, one.stop(signal.SIGINT, "interrupted"), reporter, finished)
        return False
    except BaseException:
        for one in running:
            one.stop(signal.SIGTERM, "interrupted")
        raise
    return True


def _close(
    one: Running, end: ProcessEnd, reporter: Reporter, finished: Callable[[Launch, ProcessEnd], None]
) -> None:
    if one.tail.advance():
        reporter.progressed(one.launch.name, one.tail.progress)
    finished(one.launch, end)
    reporter.ended(one.launch.name, end)


def _oom_kills() -> int:
    """How often the kernel has killed something in this control group for lack of memory."""
    with suppress(OSError, ValueError):
        for line in OOM_EVENTS.read_text().splitlines():
            key, _, count = line.partition(" ")
            if key == "oom_kill":
                return int(count)
    return 0
