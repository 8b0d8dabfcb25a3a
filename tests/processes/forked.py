"""Commands that are forked off a nursery in place of started."""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numdrift.harness.launch.preloaded import SWITCH
from numdrift.harness.launch.xla_environment import xla_python as xla_interpreter

from .nursery import AS_GUESTS, BE_REAPER, EXECUTE, Cradle, is_alike, send

PROGRAM = Path(__file__).with_name("nursery.py")


class Nursery:
    """A process that has everything imported, and forks a child for each command. It ends with `close`.

    `python` is its interpreter, `kind` is that of a further nursery. `further` are the nurseries of other interpreters,
    once a test has asked for them. `seconds` is the processor time of the commands so far, with that of their trainings.
    """

    def __init__(self, python: str = sys.executable, kind: str = "", **variables: str) -> None:
        self.seconds = 0.0
        self.python = python
        self.kind = kind
        self.further: Sequence[Nursery] = ()
        self.folder = tempfile.TemporaryDirectory(prefix="nursery-")
        self.address = str(Path(self.folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(64)
            watched, self.alive = os.pipe()
            given = [listener.fileno(), watched]
            self.environment = os.environ | AS_GUESTS | variables
            self.process = subprocess.Popen(
                [python, str(PROGRAM), *map(str, given), *filter(None, [kind])],
                stdin=subprocess.DEVNULL,
                env=self.environment,
                pass_fds=given,
            )
            os.close(watched)

    def run(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float, stderr: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """As `subprocess.run` of this Python with these arguments, with its output captured.

        What it tells on standard error goes to the open file `stderr` where one is given.
        """
        with (
            socket.socket(socket.AF_UNIX) as connection,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as told,
        ):
            connection.connect(self.address)
            request: dict[str, Any] = {
                "command": [self.python, *command], "folder": str(cwd), "environment": dict(env)
            }  # fmt: skip
            facts = ("kind", "python", "address", "environment")
            request["further"] = [{name: getattr(one, name) for name in facts} for one in self.further]
            with Path(os.devnull).open("rb") as stdin:
                streams = [stdin.fileno(), stdout.fileno(), told.fileno() if stderr is None else stderr]
                send(connection, request, streams)
            with connection.makefile("r") as answer:
                number = int(answer.readline())
                connection.settimeout(timeout)  # not while the nursery still imports
                try:
                    code, seconds = answer.readline().split()
                except TimeoutError:
                    with suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(list(command), timeout) from None
            self.seconds += float(seconds)
            stdout.seek(0)
            told.seek(0)
            return subprocess.CompletedProcess([self.python, *command], int(code), stdout.read(), told.read())

    def close(self) -> None:
        os.close(self.alive)
        self.process.wait()
        self.folder.cleanup()


@functools.cache
def nursery(threads: str) -> Nursery:
    """That of this process of the tests, started when it is first needed; one for each OMP_NUM_THREADS (empty: none) that is
    asked for, which OpenMP reads when it is loaded."""
    found = Nursery(**({"OMP_NUM_THREADS": threads} if threads else {}))
    atexit.register(found.close)
    return found


@functools.cache
def xla_nursery() -> Nursery:
    """That of mode `xla`, and one for the other modes beside it. Trainings of later commands are forked off them."""
    interpreter = xla_interpreter()
    assert interpreter is not None
    ready = nursery(os.environ.get("OMP_NUM_THREADS", ""))
    ready.further = [Nursery(str(interpreter), kind) for kind in ("xla", "beside")]
    for one in ready.further:
        atexit.register(one.close)
    return ready.further[0]


def xla_python(
    folder: Path, *arguments: str | Path, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in plain Python with torch_xla, forked."""
    ready, command = xla_nursery(), list(map(str, arguments))
    return as_text(ready.run(command, cwd=folder, env={**ready.environment, **variables}, timeout=timeout))


def python_bytes(
    folder: Path, *arguments: str | Path, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """Run Python in a folder, forked where no variable tells otherwise something that is loaded."""
    command, environment = list(map(str, arguments)), os.environ | variables
    ready = nursery(environment.get("OMP_NUM_THREADS", ""))
    if is_alike(environment, ready.environment):
        return ready.run(command, cwd=folder, env=environment, timeout=timeout)
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, check=False, timeout=timeout
    )


def python(
    folder: Path, *arguments: str | Path, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The same, with its output as text."""
    return as_text(python_bytes(folder, *arguments, timeout=timeout, **variables))


def numdrift_in(
    folder: Path, *arguments: str | Path, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, with these variables besides our own, in processes that are forked."""
    environment = os.environ | {"COLUMNS": "200", SWITCH: "0"} | variables
    ready = nursery(environment.get("OMP_NUM_THREADS", ""))
    command = ["-m", "numdrift", *map(str, arguments)]
    return as_text(ready.run(command, cwd=folder, env=environment, timeout=timeout))


@contextmanager
def forked_trainings() -> Iterator[None]:
    """Have the trainings that this very process starts in the context forked, as those of a forked command are."""
    ready = nursery(os.environ.get("OMP_NUM_THREADS", ""))
    ctypes.CDLL(None).prctl(BE_REAPER, 1)  # who forks a training ends at once, and it becomes a child of ours
    mine, its = socket.socketpair()
    with mine, socket.socket(socket.AF_UNIX) as connection:
        connection.connect(ready.address)
        with its:
            send(connection, {"command": []}, [its.fileno()])
        Cradle(mine, ready.environment, ()).install()
        before = os.environ.get(SWITCH)
        os.environ[SWITCH] = "0"
        try:
            yield
        finally:
            if before is None:
                del os.environ[SWITCH]
            else:
                os.environ[SWITCH] = before
            subprocess.Popen._execute_child = EXECUTE  # type: ignore[attr-defined]


def as_text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """As text mode reads what it printed."""
    stdout, stderr = (one.decode().replace("\r\n", "\n").replace("\r", "\n") for one in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)
