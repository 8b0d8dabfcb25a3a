"""Executes scripts as bare interpreters would, without importing torch for each: in forks of one that has it imported.

The interpreter is isolated (`python -I`): it sees no PYTHONPATH, no folder of ours and no packages of the user. It runs
no op itself, so that no fork inherits anything of an op. It imports while no script waits, so starting it early costs
nothing.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from ..records.mode_registry import registry

PROGRAM = Path(__file__).with_name("forking_interpreter.py")

MOST_WAITING = 16
"""The number of clients that may wait for an answer."""


class Scripts:
    """The client of an interpreter that listens at `address`. Several threads may request scripts; all are executed
    side by side. Raises OSError where nothing listens."""

    def __init__(self, address: Path) -> None:
        self._asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking.connect(str(address))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()

    def execute(self, path: Path, patience: float) -> tuple[int, str]:
        """Return the exit code of a script, negative for a signal, and its output.

        Raises subprocess.TimeoutExpired after `patience` seconds, once the script is killed; OSError where the
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
    """Return the folders of the packages of vendors, whose devices a script may name: an isolated interpreter does not
    look into those that PYTHONPATH names."""
    packages = {entry.module.partition(".")[0] for entry in map(registry.entry, registry.names()) if entry.module}
    specs = (importlib.util.find_spec(package) for package in sorted(packages))
    return sorted({str(Path(spec.origin).parent.parent) for spec in specs if spec is not None and spec.origin})


class ScriptInterpreter:
    """Runs such an interpreter. It ends with its context or with this process, and so do the scripts that it
    executes."""

    def __init__(self, imports: Sequence[str] = ("torch",), environment: Mapping[str, str] | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="numdrift-")  # a socket's name may have 108 bytes
        self.address = Path(self._folder.name) / "scripts.sock"
        self._lifeline, far_end = socket.socketpair()
        with far_end, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(self.address))
            listening.listen(MOST_WAITING)  # heard from now on, and answered when it has imported
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM), str(far_end.fileno()), *imports],
                # no processes that compile beside it
                env={**(os.environ if environment is None else environment), "TORCHINDUCTOR_COMPILE_THREADS": "1"},
                stdin=listening.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[far_end.fileno()],
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
