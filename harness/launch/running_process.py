"""The processes of a run, from start to end: one process, or several ranks as torchrun would start them."""

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

from ..records.modes.mode_spec import ModeSpec
from .guest_process import GuestProcess, Launch, Processes, inherited_by, start
from .journal_tail import Tail

GRACE_SECONDS = 5.0
"""The seconds that a process has to end by itself after a request, before it is killed."""

OOM_EVENTS = Path("/sys/fs/cgroup/memory.events")

Ended = Literal["exited", "timeout", "interrupted", "out-of-memory", "with-another", "lost"]
"""Reason for an end.

exited: the process ended by itself
timeout, interrupted: this process ended it when its time was over, or after Ctrl-C
out-of-memory: the operating system killed it for lack of memory
with-another: it was ended because another rank of its run failed
lost: its machine, or the numdrift process that watched it there, no longer answers
"""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """The ending of a process.

    returncode: negative for a signal
    at: time at which the end was seen, as `time.time()`
    rank: in a run of several ranks, the rank that the other fields describe: the first that failed
    ranks: in a run of several ranks, the ending of each
    """

    returncode: int
    why: Ended
    seconds: float
    at: float = 0.0
    rank: int = 0
    ranks: tuple[ProcessEnd, ...] = ()


class Running:
    """One running process."""

    def __init__(self, launch: Launch, processes: Processes | None = None) -> None:
        self.launch = launch
        self.tail = Tail(launch.events)
        self.began = time.monotonic()
        self._oom_kills = _oom_kills()
        self._process: GuestProcess = start(launch, processes)

    def poll(self) -> ProcessEnd | None:
        """Return the ending of the process, or None while it runs. End a process that exceeds its time."""
        code = self._process.poll()
        elapsed = time.monotonic() - self.began
        if code is None and self.launch.timeout is not None and elapsed > self.launch.timeout:
            return self.stop(signal.SIGTERM, "timeout")
        if code is None:
            return None
        # The kernel does not report which process it killed. So a SIGKILL is attributed to the kernel if the number of
        # the kernel's kills has increased.
        killed_for_memory = code == -signal.SIGKILL and _oom_kills() > self._oom_kills
        return ProcessEnd(code, "out-of-memory" if killed_for_memory else "exited", elapsed, time.time())

    @property
    def first(self) -> Running:
        """The process whose progress is followed."""
        return self

    @property
    def pid(self) -> int:
        return self._process.pid

    def held(self) -> ProcessEnd | None:
        """Return the ending of the run if its script has ended and its process stays alive; None otherwise."""
        if not self.launch.held or not self.tail.ended_well:
            return None
        return ProcessEnd(0, "exited", time.monotonic() - self.began, time.time())

    def stop(self, number: signal.Signals, why: Ended) -> ProcessEnd:
        """Ask the process, and all processes that it started, to end; then kill those that remain."""
        self.ask(number)
        return self.end(why, GRACE_SECONDS)

    def ask(self, number: signal.Signals) -> None:
        """Send a signal to the process and to all processes that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal only to the script's process."""
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def end(self, why: Ended, patience: float) -> ProcessEnd:
        """Wait for a process that was asked to end. After `patience` seconds kill the processes that remain."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.ask(signal.SIGKILL)  # even if it has ended: processes that it started may still run in its group
        code = self._process.wait()
        return ProcessEnd(code, why, time.monotonic() - self.began, time.time())


def _oom_kills() -> int:
    """Return the number of processes that the kernel has killed in this control group for lack of memory."""
    with suppress(OSError, ValueError):
        for line in OOM_EVENTS.read_text().splitlines():
            key, _, count = line.partition(" ")
            if key == "oom_kill":
                return int(count)
    return 0


ADDRESS = "127.0.0.1"
RUN_ID = "numdrift"

UNHEARD_SECONDS = 0.2
"""If a process writes no end to its journal, a poll sees its end at most this many seconds later: the time of several
polls."""


def rank_variables(
    rank: int, world_size: int, port: int, *, address: str = ADDRESS, hosts: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables that torchrun sets for each rank.

    `address` is that of rank 0, and `hosts` are the names of the ranks' machines, none if there is one machine. The
    variables disable the store of torchrun's agent: rank 0 serves the ranks' store.
    """
    hosts = hosts or [address] * world_size
    machines = list(dict.fromkeys(hosts))
    beside = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(beside.index(rank)),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(len(beside)),
        "GROUP_RANK": str(machines.index(hosts[rank])),
        "GROUP_WORLD_SIZE": str(len(machines)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": RUN_ID,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def thread_variables(spec: ModeSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for one thread per rank, as with torchrun, unless the user's variables say otherwise."""
    stated = spec.threads is not None or "OMP_NUM_THREADS" in {**inherited, **dict(spec.env)}
    return {} if stated else {"OMP_NUM_THREADS": "1"}


def free_port() -> int:
    """Return a port of this machine on which nobody listens at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((ADDRESS, 0))  # 0: the system chooses; before rank 0 binds the port, another process may
        return int(probe.getsockname()[1])


class RunningRanks:
    """The ranks of one run. Its progress is that of rank 0.

    When a rank fails, the others have some time to end by themselves and are then ended. The run's time limit applies
    to all ranks at once.
    """

    def __init__(self, launch: Launch, processes: Processes | None = None) -> None:
        self.launch = launch
        ranks = [replace(launch, others=()), *launch.others]
        port = free_port()
        self.began = time.monotonic()
        self._running = []
        for rank, rank_launch in enumerate(ranks):
            variables = thread_variables(rank_launch.spec, inherited_by(rank_launch)) | dict(rank_launch.variables)
            variables |= rank_variables(rank, len(ranks), port)
            # No time limit per rank: the run's limit applies to all ranks at once.
            self._running.append(Running(replace(rank_launch, timeout=None, variables=variables, others=()), processes))
        self.tail = self._running[0].tail
        self._ends: dict[int, ProcessEnd] = {}
        self._failed_at: float | None = None

    def poll(self) -> ProcessEnd | None:
        """Return the ending of the run, or None while one of its ranks runs."""
        now = time.monotonic()
        for rank, running in enumerate(self._running):
            end = None if rank in self._ends else running.poll()
            if end is not None:
                self._ends[rank] = end
                if end.returncode and self._failed_at is None:
                    self._failed_at = now
        if len(self._ends) == len(self._running):
            return self._together("exited")
        if self.launch.timeout is not None and now - self.began > self.launch.timeout:
            return self.stop(signal.SIGTERM, "timeout")
        # The other ranks wait for a peer that is gone, usually until their collective fails. Then they report the
        # failure themselves.
        if self._failed_at is not None and now - self._failed_at > GRACE_SECONDS:
            self._stop_rest(signal.SIGTERM, "with-another")
            return self._together("exited")
        return None

    @property
    def first(self) -> Running:
        """The process whose progress is followed: rank 0."""
        return self._running[0]

    def held(self) -> ProcessEnd | None:
        """Return the ending of the run if only rank 0 stays alive and its script ended well; None otherwise."""
        end = self.first.held() if self._ends.keys() == set(range(1, len(self._running))) else None
        if end is None or any(rank_end.returncode for rank_end in self._ends.values()):
            return None
        self._ends[0] = end
        return self._together("exited")

    def stop(self, number: signal.Signals, why: Ended) -> ProcessEnd:
        """Send the signal to every rank that is still running, then kill those that remain."""
        self._stop_rest(number, why)
        return self._together(why)

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every rank that still runs."""
        for rank, running in enumerate(self._running):
            if rank not in self._ends:
                running.pass_on(number)

    def _stop_rest(self, number: signal.Signals, why: Ended) -> None:
        running_ranks = [rank for rank in range(len(self._running)) if rank not in self._ends]
        # All are asked before any is waited for, so they share one grace period.
        for rank in running_ranks:
            self._running[rank].ask(number)
        until = time.monotonic() + GRACE_SECONDS
        for rank in running_ranks:
            self._ends[rank] = self._running[rank].end(why, max(0.0, until - time.monotonic()))

    def _together(self, why: Ended) -> ProcessEnd:
        ends = [self._ends[rank] for rank in range(len(self._running))]
        return together([running.launch for running in self._running], ends, why, time.monotonic() - self.began)


def together(launches: Sequence[Launch], ends: Sequence[ProcessEnd], why: Ended, seconds: float) -> ProcessEnd:
    """Return the ending of a run from those of its ranks. `why` is "exited" unless numdrift ended the run."""
    rank = first_to_fail(launches, ends)
    # If the run was stopped, use a rank that had failed before the stop, else the first rank that was stopped.
    if rank is None and why != "exited":
        rank = next((index for index, end in enumerate(ends) if end.why == why), 0)
    decisive = ends[rank or 0]
    reason = decisive.why if why == "exited" else why
    return ProcessEnd(decisive.returncode, reason, seconds, decisive.at, rank or 0, tuple(ends))


def first_to_fail(launches: Sequence[Launch], ends: Sequence[ProcessEnd]) -> int | None:
    """Return the rank whose failure came first, or None if every rank that ended by itself ended well.

    The other ranks fail because of that failure: their peer is gone. A rank's last write shows when it failed: its
    process may live on for a while, and the end of another process may be seen earlier.
    """
    failed_at: dict[int, float] = {}
    for rank, (launch, end) in enumerate(zip(launches, ends, strict=True)):
        if not end.returncode or end.why not in ("exited", "out-of-memory", "lost"):
            continue
        failed_at[rank] = end.at
        if end.why == "lost":
            continue
        if end.returncode < 0:
            # A process killed by a signal could not write its end: it ended some time before a poll saw this.
            failed_at[rank] -= UNHEARD_SECONDS
        else:
            with suppress(OSError):
                failed_at[rank] = min(end.at, launch.events.stat().st_mtime)
    return min(failed_at, key=lambda rank: failed_at[rank], default=None)
