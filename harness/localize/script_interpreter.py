"""Executes scripts as bare interpreters would, without importing torch for each: in forks of one that has it imported.

The interpreter is isolated (`python -I`): it sees no PYTHONPATH, no folder of ours and no packages of the user. It runs
no op itself, so that there is nothing in it that a fork could not take over.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

PROGRAM = Path(__file__).with_name("forking_interpreter.py")


class ScriptInterpreter:
    """One such interpreter: it imports while nobody asks for anything, and executes as many scripts side by side as are
    asked for, by several threads. It ends with its context."""

    def __init__(self, imports: Sequence[str] = ("torch",)) -> None:
        self._asking, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(PROGRAM), *imports],
                env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"},  # no processes that compile beside it
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._asking.close()
        self._process.kill()
        self._process.wait()

    def execute(self, path: Path, patience: float) -> tuple[int, str]:
        """The exit code of a script, negative for a signal, and what it printed.

        Raises subprocess.TimeoutExpired after `patience` seconds, and then it is killed; OSError where the interpreter
        itself has ended.
        """
        until = time.monotonic() + patience
        answers, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answers, tempfile.NamedTemporaryFile() as output:
            asked = {"script": path.name, "folder": str(path.parent.absolute()), "output": output.name}
            with its:
                socket.send_fds(self._asking, [json.dumps(asked).encode()], [its.fileno()])
            told: list[int] = []
            for _ in ("process", "exit code"):
                answers.settimeout(max(0.0, until - time.monotonic()))
                try:
                    message = answers.recv(32)
                except (TimeoutError, BlockingIOError):
                    for process in told:
                        with suppress(ProcessLookupError):
                            os.kill(process, signal.SIGKILL)
                    raise subprocess.TimeoutExpired([path.name], patience) from None
                if not message:
                    raise OSError("the interpreter that executes scripts has ended")
                told.append(int(message))
            return told[1], output.read().decode("utf-8", errors="replace")
