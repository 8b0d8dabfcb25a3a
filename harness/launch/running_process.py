"""The processes of a run under way: one, or several ranks as torchrun would start them, until they have ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..records.mode_spec import ModeSpec
from .guest_process import GuestProcess, Launch, Processes, inherited_by, start
from .journal_tail import Tail

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

    def __init__(self, launch: Launch, processes: Processes | None = None) -> None:
        self.launch = launch
        self.tail = Tail(launch.events)
        self.began = time.monotonic()
        self._oom_kills = _oom_kills()
        self._process: GuestProcess = start(launch, processes)

    def poll(self) -> ProcessEnd | None:
        """The way it ended, or None while it runs; a run past its time is ended here."""
        code = self._process.poll()
        elapsed = time.monotonic() - self.began
        if code is None and self.launch.timeout is not None and elapsed > self.launch.timeout:
            return self.stop(signal.SIGTERM, "timeout")
        if code is None:
            return None
        # The kernel tells nobody whom it has killed: a SIGKILL while its count of kills went up is taken for one.
        killed_for_memory = code == -signal.SIGKILL and _oom_kills() > self._oom_kills
        return ProcessEnd(code, "out-of-memory" if killed_for_memory else "exited", elapsed, time.time())

    @property
    def first(self) -> Running:
        """The process that is followed."""
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def held(self) -> ProcessEnd | None:
        """How the run ended, where its script has and its process goes on; None otherwise."""
        if not self.launch.held or not self.tail.ended_well:
            return None
        return ProcessEnd(0, "exited", time.monotonic() - self.began, time.time())

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
        self.ask(signal.SIGKILL)  # also where it has ended: what it started may still run in its group
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


ADDRESS = "127.0.0.1"
RUN_ID = "numdrift"

UNHEARD_SECONDS = 0.2
"""A process that said nothing of its end has ended so much before we saw it, at most: several looks of ours."""


def rank_variables(rank: int, world_size: int, port: int) -> dict[str, str]:
    """What torchrun gives each rank of one machine, but for its agent's store: rank 0 serves the ranks' own."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def thread_variables(spec: ModeSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """One thread a rank unless somebody says otherwise, which is torchrun's rule."""
    stated = spec.threads is not None or "OMP_NUM_THREADS" in {**inherited, **dict(spec.env)}
    return {} if stated else {"OMP_NUM_THREADS": "1"}


def free_port() -> int:
    """A port of this machine that nobody listens at just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        found.bind((ADDRESS, 0))  # 0: the system chooses; between now and rank 0's bind another may take it
        return int(found.getsockname()[1])


class RunningRanks:
    """The ranks of one run under way, which is followed by its rank 0.

    When a rank has failed the others may end by themselves for a while, then they are ended; the run's time is over for
    all of them at once.
    """

    def __init__(self, launch: Launch, processes: Processes | None = None) -> None:
        self.launch = launch
        ranks = [replace(launch, others=()), *launch.others]
        port = free_port()
        self.began = time.monotonic()
        self._running = []
        for rank, one in enumerate(ranks):
            given = thread_variables(one.spec, inherited_by(one)) | dict(one.variables)
            given |= rank_variables(rank, len(ranks), port)
            # No time limit of its own: that of the run is over for all ranks at once.
            self._running.append(Running(replace(one, timeout=None, variables=given, others=()), processes))
        self.tail = self._running[0].tail
        self._ends: dict[int, ProcessEnd] = {}
        self._failed_at: float | None = None

    def poll(self) -> ProcessEnd | None:
        """The way the run ended, or None while a rank of it runs."""
        now = time.monotonic()
        for rank, one in enumerate(self._running):
            end = None if rank in self._ends else one.poll()
            if end is not None:
                self._ends[rank] = end
                if end.returncode and self._failed_at is None:
                    self._failed_at = now
        if len(self._ends) == len(self._running):
            return self._together("exited")
        if self.launch.timeout is not None and now - self.began > self.launch.timeout:
            return self.stop(signal.SIGTERM, "timeout")
        # The others wait for a peer that is gone, in most cases until their collective fails, and say so themselves.
        if self._failed_at is not None and now - self._failed_at > GRACE_SECONDS:
            self._stop_rest(signal.SIGTERM, "with-another")
            return self._together("exited")
        return None

    @property
    def first(self) -> Running:
        """The process that is followed: rank 0."""
        return self._running[0]

    def held(self) -> ProcessEnd | None:
        """How the run ended, where rank 0 alone goes on, its script having ended well; None otherwise."""
        end = self.first.held() if self._ends.keys() == set(range(1, len(self._running))) else None
        if end is None or any(one.returncode for one in self._ends.values()):
            return None
        self._ends[0] = end
        return self._together("exited")

    def stop(self, how: signal.Signals, why: Ended) -> ProcessEnd:
        """Ask every rank that still runs to end, then kill what is left."""
        self._stop_rest(how, why)
        return self._together(why)

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every rank that still runs."""
        for rank, one in enumerate(self._running):
            if rank not in self._ends:
                one.pass_on(number)

    def _stop_rest(self, how: signal.Signals, why: Ended) -> None:
        left = [rank for rank in range(len(self._running)) if rank not in self._ends]
        # All are asked before any is waited for, and the time of grace is one for all of them.
        for rank in left:
            self._running[rank].ask(how)
        until = time.monotonic() + GRACE_SECONDS
        for rank in left:
            self._ends[rank] = self._running[rank].end(why, max(0.0, until - time.monotonic()))

    def _together(self, why: Ended) -> ProcessEnd:
        ends = tuple(self._ends[rank] for rank in range(len(self._running)))
        rank = first_to_fail([one.launch for one in self._running], ends)
        # A run that we stopped is told by a rank that had failed before, else by the first that we stopped.
        if rank is None and why != "exited":
            rank = next((place for place, end in enumerate(ends) if end.why == why), 0)
        found, seconds = ends[rank or 0], time.monotonic() - self.began
        return ProcessEnd(found.returncode, found.why if why == "exited" else why, seconds, found.at, rank or 0, ends)


def first_to_fail(launches: Sequence[Launch], ends: Sequence[ProcessEnd]) -> int | None:
    """The rank whose failure came first, None where every rank that ended by itself did so well.

    The others fail because of it: their peer is gone. What a rank has written last tells when it failed; its process
    may live on for a while, and another's end may be seen before.
    """
    failed_at: dict[int, float] = {}
    for rank, (launch, end) in enumerate(zip(launches, ends, strict=True)):
        if not end.returncode or end.why not in ("exited", "out-of-memory"):
            continue
        failed_at[rank] = end.at
        if end.returncode < 0:
            # Killed by a signal, it could write nothing: its end lies before the moment in which we saw it.
            failed_at[rank] -= UNHEARD_SECONDS
        else:
            with suppress(OSError):
                failed_at[rank] = min(end.at, launch.events.stat().st_mtime)
    return min(failed_at, key=lambda rank: failed_at[rank], default=None)
