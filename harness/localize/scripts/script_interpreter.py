"""An interpreter that executes each script in a fork, as a bare interpreter would, but with torch already imported.

The interpreter is isolated (`python -I`): it ignores PYTHONPATH, numdrift's folders and the user's site-packages. It
executes no op itself, so that no fork inherits the state of an op. It is a fork of the preloaded process of the runs if
that is like an isolated interpreter. Otherwise it imports in the background, so starting it early costs nothing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

from ...records.modes.mode_registry import registry

PROGRAM = Path(__file__).with_name("forking_interpreter.py")

MOST_WAITING = 16
"""The number of clients that may wait for an answer."""


class Scripts:
    """The client of an interpreter that listens at `address`.

    Several threads may request scripts, which are executed in parallel. Raises OSError if nothing listens.
    """

    def __init__(self, address: Path) -> None:
        self._asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking.connect(str(address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()

    def execute(self, path: Path, patience: float) -> tuple[int, str]:
        """Return the exit code of a script, negative for a signal, and its output.

        After `patience` seconds, the script is killed, and subprocess.TimeoutExpired is raised. Raises OSError if the
        interpreter itself has ended.
        """
        until = time.monotonic() + patience
        answers, far_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answers, tempfile.NamedTemporaryFile() as output:
            request = {"script": path.name, "folder": str(path.parent.absolute()), "output": output.name}
            request |= {"packages": os.pathsep.join(vendors_folders())}
            with far_end:
                socket.send_fds(self._asking, [json.dumps(request).encode()], [far_end.fileno()])
            reports: list[int] = []
            for _ in ("process", "exit code"):
                answers.settimeout(max(0.0, until - time.monotonic()))
                try:
                    message = answers.recv(32)
                except (TimeoutError, BlockingIOError):
                    for process in reports:
                        with suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)
                    raise subprocess.TimeoutExpired([path.name], patience) from None
                if not message:
                    raise OSError("the interpreter that executes scripts has ended")
                reports.append(int(message))
            return reports[1], output.read().decode("utf-8", errors="replace")


def vendors_folders() -> list[str]:
    """Return the folders that contain vendors' packages, since a script may name the devices of these packages.

    An isolated interpreter does not search the folders of PYTHONPATH.
    """
    packages = {entry.module.partition(".")[0] for entry in map(registry.entry, registry.names()) if entry.module}
    specs = (importlib.util.find_spec(package) for package in sorted(packages))
    return sorted({str(Path(spec.origin).parent.parent) for spec in specs if spec is not None and spec.origin})


class ForkingProcess(Protocol):
    """The process of `forking_interpreter.py`, such as a `subprocess.Popen`."""

    pid: int

    def wait(self) -> int: ...


class ScriptInterpreter:
    """A running interpreter. It ends, with its scripts, when its context is left or when this process ends.

    `fork` forks the program from a process that has imported the modules already, with open files whose numbers are the
    program's first arguments. It returns None if that is not possible.
    """

    def __init__(
        self,
        imports: Sequence[str] = ("torch",),
        environment: Mapping[str, str] | None = None,
        fork: Callable[[Path, Sequence[int]], ForkingProcess | None] = lambda program, files: None,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="numdrift-")  # a socket's path has at most 108 bytes
        self.address = Path(self._folder.name) / "scripts.sock"
        self._lifeline, far_end = socket.socketpair()
        with far_end, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(self.address))
            listening.listen(MOST_WAITING)  # clients queue, and are answered after the imports
            ends = listening.fileno(), far_end.fileno()
            self._process: ForkingProcess = fork(PROGRAM, ends) or subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM), *map(str, ends), *imports],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=ends,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._lifeline.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()
