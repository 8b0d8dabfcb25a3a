"""A user's kernel in a process of its own, so that a crash of it is an answer and not the end of the lab."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Self

import torch

from numdrift.harness.errors import KernelError, NotAvailable, UsageError

from .calls import LabCall, Output

SECONDS = 120.0
"""How long a kernel may take to be loaded, the start of its process included, and for the calls of one case."""

MORE_TIME = "--timeout SECONDS gives it more"
MODULE = "numdrift.kernels.lab.isolated"


class IsolatedKernel:
    """The kernel of one op from a source file, called in another process, which is started when it is
    needed."""

    def __init__(self, op: str, path: Path, *, device: str = "cpu", seconds: float = SECONDS) -> None:
        self.kernel = f"{op}={path}"
        self._path = path
        self._arguments = [op, str(path), device]
        self._seconds = seconds
        self._late = False
        self._process: subprocess.Popen[str] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="numdrift-kernel-")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._folder.cleanup()

    def load(self) -> None:
        """Load the file, and no more.

        Raises UsageError when the file is no kernel, or crashes or takes longer than it may when it is loaded,
        NotAvailable when it cannot run here.
        """
        try:
            self._answer("")
        except KernelError as error:
            if self._late:
                late = f"had not been loaded after {self._seconds:g} s; {MORE_TIME}"
                raise UsageError(f"{self._path} {late}") from None
            why = str(error).removeprefix(f"kernel {error.kernel} ")
            raise UsageError(f"{self._path} {why} when it was loaded") from None

    def run(self, calls: list[LabCall]) -> list[list[Output]]:
        """The outputs of each call.

        Raises UsageError when the file is no kernel, NotAvailable when it cannot run here, KernelError when it
        fails, crashes or takes longer than it may; one that did the last is not called again.
        """
        request = Path(self._folder.name) / "calls.pt"
        torch.save([[list(call.args), dict(call.kwargs)] for call in calls], request)
        saved = torch.load(self._answer(str(request)), weights_only=True)
        return [[Output(name, tuple(tensors)) for name, tensors in outputs] for outputs in saved]

    def _answer(self, request: str) -> str:
        answer = self._ask(request)
        kind, text = answer["kind"], answer["text"]
        if kind == "usage":
            raise UsageError(text)
        if kind == "not available":
            raise NotAvailable(f"kernel {self.kernel}", text)
        if kind == "failed":
            raise KernelError(self.kernel, text)
        return text

    def _ask(self, request: str) -> dict[str, str]:
        if self._late:
            raise self._too_late()
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise KernelError(self.kernel, self._how_it_ended()) from None
        if not select.select([process.stdout], [], [], self._seconds)[0]:
            self._end()
            self._late = True
            raise self._too_late()
        line = process.stdout.readline()
        if not line:
            raise KernelError(self.kernel, self._how_it_ended())
        answer: dict[str, str] = json.loads(line)
        return answer

    def _too_late(self) -> KernelError:
        return KernelError(self.kernel, f"had not returned after {self._seconds:g} s; {MORE_TIME}")

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", MODULE, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def _how_it_ended(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        self._end()
        if code < 0:
            return f"crashed with {_signal_name(-code)}"
        return f"ended its process with exit code {code}"

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
