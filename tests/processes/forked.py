"""Commands that are forked off a nursery in place of started."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .nursery import is_alike, send

PROGRAM = Path(__file__).with_name("nursery.py")


class Nursery:
    """A process that has everything imported, and forks a child for each command. It ends with `close`.

    `seconds` is the processor time of the commands so far, with that of their trainings.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.folder = tempfile.TemporaryDirectory(prefix="nursery-")
        self.address = str(Path(self.folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(64)
            watched, self.alive = os.pipe()
            given = [listener.fileno(), watched]
            self.environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1"}
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *map(str, given)],
                stdin=subprocess.DEVNULL,
                env=self.environment,
                pass_fds=given,
            )
            os.close(watched)

    def run(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` of this Python with these arguments, with its output captured as text."""
        with (
            socket.socket(socket.AF_UNIX) as connection,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
        ):
            connection.settimeout(timeout)
            connection.connect(self.address)
            request = {"command": [sys.executable, *command], "folder": str(cwd), "environment": dict(env)}
            with Path(os.devnull).open("rb") as stdin:
                send(connection, request, [stdin.fileno(), stdout.fileno(), stderr.fileno()])
            with connection.makefile("r") as answer:
                number = int(answer.readline())
                try:
                    code, seconds = answer.readline().split()
                except TimeoutError:
                    with suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(list(command), timeout) from None
            self.seconds += float(seconds)
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(
                [sys.executable, *command], int(code), _text(stdout.read()), _text(stderr.read())
            )

    def close(self) -> None:
        os.close(self.alive)
        self.process.wait()
        self.folder.cleanup()


@functools.cache
def nursery() -> Nursery:
    """That of this process of the tests, started when it is first needed."""
    found = Nursery()
    atexit.register(found.close)
    return found


def numdrift_in(
    folder: Path, *arguments: str | Path, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, with these variables besides our own, in processes that are forked."""
    environment = os.environ | {"COLUMNS": "200"} | variables
    command = ["-m", "numdrift", *map(str, arguments)]
    return nursery().run(command, cwd=folder, env=environment, timeout=timeout)


def python(
    folder: Path, *arguments: str | Path, timeout: float = 900, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, forked where no variable tells otherwise something that is loaded."""
    command, environment = list(map(str, arguments)), os.environ | variables
    if is_alike(environment, nursery().environment):
        return nursery().run(command, cwd=folder, env=environment, timeout=timeout)
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False,
        timeout=timeout,
    )  # fmt: skip


def _text(output: bytes) -> str:
    """As text mode reads it."""
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")
