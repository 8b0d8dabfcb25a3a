"""Training runs that begin in milliseconds: their processes are not started, but forked from a process that has
imported torch.

`recorder/preloaded_process.py` is the program of that process. A fork computes the same bits as a started process. If
forking is not possible (a system other than Linux, an accelerator, a thread in the preloaded process), or if it fails,
the process is started. With `NUMDRIFT_PRELOAD=0` every process is started.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from .guest_process import PACKAGE, Guest, GuestProcess, StartedProcesses

logger = logging.getLogger("numdrift.preloaded")

SWITCH = "NUMDRIFT_PRELOAD"

PROGRAM = PACKAGE / "harness/recorder/preloaded_process.py"

READ_LATE = frozenset(
    (
        "DEVICE", "LTC_SAVE_TENSORS_FILE", "LTC_SAVE_TENSORS_FMT",
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME",
        "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_USE_AGENT_STORE",
    )
)  # fmt: skip
"""Variables that numdrift itself sets for a process and that nothing reads while torch is being imported.

Scripts read DEVICE, the lazy core reads the variables of its dump at its first graph, and torch.distributed reads the
variables of the ranks when the ranks connect. Any other variable may be read early.
"""

MOST = 3
"""Maximum number of preloaded processes at a time: each occupies some 200 MB that it shares with no other."""

PATIENCE = 120.0
"""A preloaded process is abandoned if it does not answer a request for a fork within this number of seconds.

This time includes the import of torch.
"""


def can_preload() -> bool:
    return sys.platform == "linux" and hasattr(os, "pidfd_open") and os.environ.get(SWITCH) != "0"


def circumstances() -> tuple[object, ...]:
    """Return the properties, other than variables, that a process inherits from the process that starts it."""
    inherited_keys = ("Umask:", "Groups:", "SigBlk:", "SigIgn:", "Cpus_allowed:", "Mems_allowed:")
    status = Path("/proc/thread-self/status").read_text(encoding="utf-8").splitlines()
    limits = Path("/proc/self/limits").read_text(encoding="utf-8")
    # A fork has the working directory in which its preloaded process was started.
    return (
        Path.cwd(),
        limits,
        os.getpriority(os.PRIO_PROCESS, 0),
        *(line for line in status if line.startswith(inherited_keys)),
    )


Key = tuple[object, ...]


class PreloadedProcesses:
    """A preloaded process for each combination of interpreter, environment and circumstances that several guests share.

    The processes are started for guests that `expect` announced, or, if `lasting`, for all guests. They end with the
    context.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting
        self._processes: dict[Key, PreloadedProcess | None] = {}  # most recent last; None for a failed process
        self._started = StartedProcesses()
        self._turn = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self._processes.values():
            if process is not None:
                process.close()
        self._processes.clear()

    def expect(self, guests: Sequence[Guest]) -> None:
        """Start the preloaded processes that these guests share, so that they import torch at the same time."""
        keys = [self._key(guest) for guest in guests]
        counts = Counter(keys)
        for guest, key in zip(guests, keys, strict=True):
            if key is not None and (self._lasting or counts[key] > 1):
                self._preloaded(key, guest)

    def start(self, guest: Guest, stdout: int, stderr: int, *, stdin: int | None = subprocess.DEVNULL) -> GuestProcess:
        key = self._key(guest) if stdin == subprocess.DEVNULL else None
        if key is not None and (self._lasting or key in self._processes):
            preloaded = self._preloaded(key, guest)
            if preloaded is not None:
                try:
                    return preloaded.fork(guest, stdout, stderr)
                except OSError as error:
                    logger.info(
                        "a process was started because no fork was available: %s; %s", error, preloaded.error_output()
                    )
                    with self._turn:
                        self._processes[key] = None
                    if not preloaded.is_busy():
                        preloaded.close()
        return self._started.start(guest, stdout, stderr, stdin=stdin)

    def start_isolated(self, guest: Guest, program: Path, descriptors: Sequence[int]) -> GuestProcess | None:
        """Start a program with these open files, as `python -I` would, in place of what the guest would run.

        Return None, so that the caller starts it, if no preloaded process has the guest's environment, or if that
        process has imported anything that an isolated interpreter would not.
        """
        key = self._key(guest)
        preloaded = None if key is None else self._processes.get(key)
        if preloaded is None:
            return None
        try:
            with Path(os.devnull).open("wb") as stream:
                return preloaded.fork(guest, stream.fileno(), stream.fileno(), program, descriptors)
        except OSError as error:
            logger.info("%s was started because no fork was available: %s", program.name, error)
            return None

    def _key(self, guest: Guest) -> Key | None:
        """Return a key that is equal for guests that may be forked from one process.

        Return None for a guest that has to be started.
        """
        if not guest.imports or not can_preload():
            return None
        early = frozenset((name, value) for name, value in guest.environment.items() if name not in READ_LATE)
        return guest.python, early, *circumstances()

    def _preloaded(self, key: Key, guest: Guest) -> PreloadedProcess | None:
        with self._turn:
            if key in self._processes:
                self._processes[key] = preloaded = self._processes.pop(key)
                return preloaded
            idle = [
                idle_key
                for idle_key, process in self._processes.items()
                if process is not None and not process.is_busy()
            ]
            alive = sum(process is not None for process in self._processes.values())
            if alive >= MOST and idle:
                evicted = self._processes.pop(idle[0])
                assert evicted is not None
                evicted.close()
            try:
                self._processes[key] = PreloadedProcess(guest)
            except OSError as error:
                logger.info("no process could be preloaded: %s", error)
                self._processes[key] = None
            return self._processes[key]


class PreloadedProcess:
    """A process that imports the modules that `guest` needs, and the connection on which forks are requested."""

    def __init__(self, guest: Guest) -> None:
        self._forks: list[ForkedProcess] = []
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115, open as long as the process
        self._connection, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        early = {name: value for name, value in guest.environment.items() if name not in READ_LATE}
        with its, tempfile.TemporaryFile() as stdout:
            self._process = subprocess.Popen(
                [guest.python, str(PROGRAM), str(its.fileno()), ",".join(guest.imports)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=self._stderr,
                env=early,
                pass_fds=[its.fileno()],
                start_new_session=True,
            )

    def fork(
        self, guest: Guest, stdout: int, stderr: int, program: Path | None = None, descriptors: Sequence[int] = ()
    ) -> ForkedProcess:
        """Start a guest, or an isolated `program` with open files, whose numbers are its first arguments.

        Raises OSError if it could not be started; in that case none of its code has run.
        """
        connection, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its:
                request = json.dumps({"imports": guest.imports, "isolated": program is not None}).encode()
                socket.send_fds(self._connection, [request], [stdout, stderr, its.fileno()])
            connection.settimeout(PATIENCE)
            number = connection.recv(32)
            if not number:
                raise ConnectionError("the preloaded process did not answer")
            # The fork learns its task only now, so a fork that was abandoned earlier has done nothing.
            variables = {name: value for name, value in guest.environment.items() if name in READ_LATE}
            arguments = [str(PACKAGE), str(guest.config), *([guest.module] if guest.module else [])]
            instructions = {
                "program": str(program or ""),
                "arguments": guest.imports if program else arguments,
                "variables": variables,
            }
            socket.send_fds(connection, [json.dumps(instructions).encode()], descriptors)
        except BaseException:
            connection.close()
            raise
        forked = ForkedProcess(int(number), connection)
        self._forks = [*(fork for fork in self._forks if fork.poll() is None), forked]
        return forked

    def is_busy(self) -> bool:
        return any(fork.poll() is None for fork in self._forks)

    def error_output(self) -> str:
        """Return the text that the process has printed on its standard error."""
        descriptor = self._stderr.fileno()  # read at an explicit offset: the process still writes at its own
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace").strip()

    def close(self) -> None:
        """End the process and all its forks that still run."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._stderr.close()


class ForkedProcess:
    """A fork of a preloaded process. The preloaded process reports on the connection how the fork ended."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                reply = self._connection.recv(32)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(["fork"], timeout or 0.0) from None
            except OSError:
                reply = b""
            self._connection.close()
            if not reply:
                # The preloaded process was killed. The kernel has asked its forks to end; none may continue unseen.
                with suppress(OSError):
                    os.killpg(self.pid, signal.SIGKILL)
            self.returncode = int(reply or -signal.SIGKILL)
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
