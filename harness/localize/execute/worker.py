"""The client of a worker: it requests digests of the worker's steps, and lets the worker's kernels execute calls."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from ...errors import WorkerError, WorkerGone
from ...tape.replaying.laid_out import LaidOut
from ...tape.serving.wire import Message, WireError, described, receive, send, tensors_of

ANSWER_SECONDS = 600.0
"""The longest wait for an answer, in seconds."""

CONNECT_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that a worker reports: its torch version, threads, mode, process id, and the steps that have a tape."""

    torch: str
    threads: int
    mode: str
    pid: int
    steps: tuple[int, ...]


class Worker:
    """A connection to a worker.

    Every request raises WorkerError if the answer is an error, and WorkerGone if there is no answer. After WorkerGone,
    the connection is closed.
    """

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.name = name
        self.apart = False
        """True if requests refer to steps whose calls on lists are split (see `tape.list_calls`)."""
        self._connection = connection

    @classmethod
    def connect(
        cls, path: Path | str, timeout: float, *, name: str = "", alive: Callable[[], bool] = lambda: True
    ) -> Worker:
        """Connect as soon as the worker listens at `path`.

        Raises WorkerGone after `timeout` seconds, or when the worker is no longer `alive`.
        """
        name = name or Path(path).stem
        until = time.monotonic() + timeout
        while True:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(os.fspath(path))
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
            except OSError as error:
                connection.close()
                raise WorkerGone(name, f"cannot be reached at {path}: {error}") from error
            else:
                connection.settimeout(ANSWER_SECONDS)
                return cls(connection, name)
            if not alive():
                raise WorkerGone(name, "it ended before it accepted a connection")
            if time.monotonic() > until:
                raise WorkerGone(name, f"did not accept a connection at {path} within {timeout:g} s")
            time.sleep(CONNECT_POLL_SECONDS)

    def facts(self) -> Facts:
        fields = self._ask({"request": "facts"}).fields
        with self._understanding():
            steps = tuple(int(step) for step in fields["steps"])
            return Facts(str(fields["torch"]), int(fields["threads"]), str(fields["mode"]), int(fields["pid"]), steps)

    def digests(self, step: int) -> list[list[str | None]]:
        """Return the digests of each call's real execution: of fresh outputs, then of written arguments."""
        fields = self._ask({"request": "digests", "step": step}).fields
        with self._understanding():
            return [[None if digest is None else str(digest) for digest in call] for call in fields["digests"]]

    def notes(self, step: int) -> list[str]:
        """Return notes on the parts of the step that could not be observed, with the reasons."""
        fields = self._ask({"request": "notes", "step": step}).fields
        with self._understanding():
            return [str(note) for note in fields["notes"]]

    def prepare(self, step: int, positions: Sequence[int]) -> None:
        """Announce the calls that will be executed, so that those that need compiling are compiled together."""
        self._ask({"request": "prepare", "step": step, "positions": list(positions)})

    def execute(
        self,
        step: int,
        position: int,
        memory: Mapping[int, tuple[int, torch.Tensor]],
        settings: Mapping[str, Any] | None = None,
    ) -> tuple[list[torch.Tensor | None], dict[int, torch.Tensor]]:
        """Have a call executed on these spans of memory: by slot, the place where a span begins, and its bytes.

        `settings` are those of torch's settings that differ from the step's. Return the outputs, None for those that
        are not fresh, and by slot the spans that were written. Such a span is longer than before if the op has enlarged
        its storage. All tensors are on the CPU.
        """
        answer = self._ask(
            {
                "request": "execute",
                "step": step,
                "position": position,
                "memory": [[slot, start] for slot, (start, _) in memory.items()],
                **_stated(settings),
            },
            [data.cpu() for _, data in memory.values()],
        )
        with self._understanding():
            slots = [int(slot) for slot in answer.fields["written"]]
            first = len(answer.segments) - len(slots)
            written = dict(zip(slots, answer.segments[first:], strict=True))
            return tensors_of(answer.fields["outputs"], answer.segments[:first]), written

    def relaid(
        self,
        step: int,
        position: int,
        tensors: Sequence[torch.Tensor],
        settings: Mapping[str, Any] | None = None,
    ) -> tuple[list[torch.Tensor | None], list[torch.Tensor]]:
        """Have a call executed on tensors whose layouts differ from the recorded ones.

        Return the outputs, None for those that are not fresh, and the tensors that the call has written.
        """
        values, segments = described(tensors)
        fields = {"request": "relaid", "step": step, "position": position, "tensors": values, **_stated(settings)}
        answer = self._ask(fields, segments)
        with self._understanding():
            fresh, written = (tensors_of(answer.fields[name], answer.segments) for name in ("outputs", "written"))
            return fresh, [tensor for tensor in written if tensor is not None]

    def called(self, step: int, position: int) -> list[LaidOut] | None:
        """Return the layouts of the tensors with which the mode's own code called the op; None if they are unknown."""
        answer = self._ask({"request": "called", "step": step, "position": position})
        with self._understanding():
            layouts = answer.fields["layouts"]
            return None if layouts is None else [LaidOut.from_json(layout) for layout in layouts]

    def value(self, step: int, position: int) -> list[torch.Tensor] | None:
        """Return the results of a call's real execution; None if they were not kept."""
        answer = self._ask({"request": "value", "step": step, "position": position})
        with self._understanding():
            values = answer.fields["tensors"]
            if values is None:
                return None
            return [tensor for tensor in tensors_of(values, answer.segments) if tensor is not None]

    def quit(self) -> None:
        """Let the process exit, and close the connection. A process that has already ended is not an error."""
        with suppress(WorkerGone):
            self._ask({"request": "quit"})
        self.close()

    def close(self) -> None:
        """Close the connection, even while a thread waits for an answer. The process then waits for a new client."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, fields: Mapping[str, Any], segments: Sequence[torch.Tensor] = ()) -> Message:
        try:
            send(self._connection, Message({**fields, "apart": True} if self.apart else fields, segments))
            answer = receive(self._connection)
        except (OSError, WireError) as error:
            self.close()
            raise WorkerGone(self.name, f"does not answer ({error})") from error
        if "error" in answer.fields:
            raise WorkerError(self.name, str(answer.fields["error"]))
        return answer

    @contextmanager
    def _understanding(self) -> Iterator[None]:
        """Raise WorkerError for an answer that cannot be understood."""
        try:
            yield
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerError(
                self.name, f"its answer cannot be understood ({type(error).__name__}: {error})"
            ) from error


def _stated(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"settings": dict(settings)} if settings else {}
