"""A user's kernel in a separate process, so that its crash is a result and does not end the lab.

This module implements both processes. `python -m numdrift.kernels.lab.isolation OP FILE DEVICE OPENER` starts the
separate one, which reads paths of saved calls from its standard input and answers each path with one line of JSON. The
kernel's output goes to standard error, and the kernel's standard input is empty."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import torch

from numdrift.harness.errors import KernelError, NotAvailable, UsageError

from ..registry import Kernel, load_target
from ..user import user_kernel
from .calls import LabCall, Output
from .captured import flush_c
from .trial import attempt

SECONDS = 120.0
"""The time limit for loading a kernel, including the start of its process, and for the calls of one case."""

MORE_TIME = "--timeout SECONDS allows more"


class IsolatedKernel:
    """The kernel of one op from a source file, called in another process, which is started on demand.

    `opener` is a `module:function` that makes a list of devices ready in that process; it is empty if torch supports
    the device without one.
    """

    def __init__(self, op: str, path: Path, *, device: str = "cpu", seconds: float = SECONDS, opener: str = "") -> None:
        self.kernel = f"{op}={path}"
        self._path = path
        self._arguments = [op, str(path), device, opener]
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
        """Load the file without calling its kernel.

        Raises UsageError if the file is not a kernel, or crashes or exceeds the time limit while loading, and
        NotAvailable if it cannot run here.
        """
        try:
            self._answer("")
        except KernelError as error:
            if self._late:
                late = f"was not loaded within {self._seconds:g} s; {MORE_TIME}"
                raise UsageError(f"{self._path} {late}") from None
            why = str(error).removeprefix(f"kernel {error.kernel} ")
            raise UsageError(f"{self._path} {why} when it was loaded") from None

    def run(self, calls: Sequence[LabCall]) -> list[list[Output]]:
        """Return the outputs of each call.

        Raises UsageError if the file is not a kernel, NotAvailable if it cannot run here, and KernelError if it fails,
        crashes or exceeds the time limit. A kernel that has exceeded the limit is not called again.
        """
        request = Path(self._folder.name) / "calls.pt"
        torch.save([[list(call.args), dict(call.kwargs)] for call in calls], request)
        saved = torch.load(self._answer(str(request)), weights_only=True)
        return [[Output(name, tuple(tensors)) for name, tensors in outputs] for outputs in saved]

    def _answer(self, request: str) -> str:
        """Send one line and wait for the answer. Raises the error that the answer reports, or KernelError if the
        process has ended."""
        late = KernelError(self.kernel, f"did not return within {self._seconds:g} s; {MORE_TIME}")
        if self._late:
            raise late
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "numdrift.kernels.lab.isolation", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._ended(process) from None
        # Polling the pipe suffices: at most one answer is in transit, so Python's buffer has no other.
        answers = select.poll()  # select() takes no descriptor from 1024 on
        answers.register(process.stdout, select.POLLIN)
        if not answers.poll(self._seconds * 1000):
            self._end()
            self._late = True
            raise late
        line = process.stdout.readline()
        if not line:
            raise self._ended(process)
        answer = json.loads(line)
        kind, text = str(answer["kind"]), str(answer["text"])
        if kind == "usage":
            raise UsageError(text)
        if kind == "not available":
            raise NotAvailable(f"kernel {self.kernel}", text)
        if kind == "failed":
            raise KernelError(self.kernel, text)
        return text

    def _ended(self, process: subprocess.Popen[str]) -> KernelError:
        code = process.wait()
        self._end()
        how = f"ended its process with exit code {code}"
        if code < 0:
            try:
                how = f"crashed with {signal.Signals(-code).name}"
            except ValueError:  # a signal that Python has no name for
                how = f"crashed with signal {-code}"
        return KernelError(self.kernel, how)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):  # closing the stream sends what is still buffered
                if stream is not None:
                    stream.close()


# The process itself.


def main(op: str, path: str, device: str, opener: str) -> None:
    """Serve until standard input ends; an empty line only checks that the file can be loaded."""
    # The pipes are moved away from descriptors 0 and 1 before the kernel's file is loaded, because C code uses these.
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    kernel: Kernel | None = None
    for line in requests:
        request, text = Path(line.strip()), ""
        try:
            if kernel is None and opener:
                load_target(opener)([device])
            kernel = kernel or user_kernel(op, Path(path))
            if line.strip():
                calls = [LabCall(tuple(args), kwargs) for args, kwargs in torch.load(request, weights_only=True)]
                results = attempt(kernel, calls, device)
                text = str(request.with_name("outputs.pt"))
                torch.save([[(output.name, list(output.tensors)) for output in outputs] for outputs in results], text)
            kind = "done"
        except UsageError as error:
            kind, text = "usage", str(error)
        except NotAvailable as error:
            kind, text = "not available", error.why
        except KernelError as error:
            kind, text = "failed", str(error).removeprefix(f"kernel {error.kernel} ")
        flush_c()
        answers.write(json.dumps({"kind": kind, "text": text}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
