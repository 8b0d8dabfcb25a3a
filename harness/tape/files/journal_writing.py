"""The writing side of a journal: append-only files without buffers, with one system call per record if possible.

The operating system has everything that was written. If the process is killed, at most the record that is being written
is lost.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...records import frames

RELEASE_AFTER = 1 << 20
"""The number of bytes that are appended to a file before the file's pages are released from the page cache.

A recording must not push the training's data out of the page cache. On machines on which fresh pages are slow, such as
a virtual machine, the release also saves time: appending 3.2 MB every 50 ms takes 1.4 ms instead of 3.4 to 4.3 ms."""

MOST_PARTS = 512
"""The largest number of buffers that are passed to one writev. Linux allows 1024 (IOV_MAX)."""


encode = json.JSONEncoder(separators=(",", ":")).encode

WAITING_BYTES = 1 << 24
"""The most bytes of lines that wait for room on a full disk: the losses of more than a hundred thousand steps."""


class AppendFile:
    """An append-only file, which is opened when its first record is written, and closed when nothing refers to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._finalizer: weakref.finalize[[int, int], Any] | None = None
        self._cached = 0

    def descriptor(self) -> int:
        """Return the descriptor of the file, which is opened by the first call."""
        if self._descriptor is None:
            # The file has no buffer, so written records survive if the process is killed. Because of O_CLOEXEC,
            # programs that the script starts do not inherit the file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o644)
            # A process may make any number of recordings, and the descriptors of each would stay open otherwise. When
            # the process exits, the system closes them, after the last line of the journal. In a process that is forked
            # from this one, the number may belong to another file by then.
            self._finalizer = weakref.finalize(self, _close_in, os.getpid(), self._descriptor)
            self._finalizer.atexit = False
        return self._descriptor

    def append(self, parts: Sequence[Any]) -> int:
        """Write the buffers one after the other, and return the number of bytes.

        Raises OSError, for example if the disk is full. Then the file is as it was before.
        """
        descriptor = self.descriptor()
        total = 0
        try:
            for start in range(0, len(parts), MOST_PARTS):
                pending = [*parts[start : start + MOST_PARTS]]
                while pending:
                    # writev may write only some of the bytes, and stop within a buffer. The next iteration writes the
                    # rest.
                    written = os.writev(descriptor, pending)
                    total += written
                    done = 0
                    while done < len(pending) and written >= len(pending[done]):
                        written -= len(pending[done])
                        done += 1
                    del pending[:done]
                    if pending and written:
                        pending[0] = memoryview(pending[0])[written:]
        except OSError:
            with suppress(OSError):  # a record that is written in part would make all later ones unreadable
                os.ftruncate(descriptor, os.fstat(descriptor).st_size - total)
            raise
        self._cached += total
        if self._cached >= RELEASE_AFTER:
            # Ask the operating system to release this file's pages, so that the training can use the memory. A file
            # system may ignore this advice.
            self._cached = 0
            with suppress(OSError, AttributeError):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return total

    def close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
            self._descriptor = self._finalizer = None


def _close_in(process: int, descriptor: int) -> None:
    if os.getpid() == process:
        os.close(descriptor)


class EventLog(AppendFile):
    """The lines of a journal, one JSON object each.

    While the disk is full, lines wait in memory, and are written with the first line for which there is room.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def write(self, event: str, **fields: Any) -> None:
        """Write a line. Raises OSError, but for a full disk only once WAITING_BYTES of lines wait."""
        line = encode({"event": event, **fields}).encode() + b"\n"
        is_first = not self._waiting
        try:
            self.append([*self._waiting, line])
        except OSError as error:
            self._wait(line, error)
            if is_first:
                why = os.strerror(error.errno or 0)
                print(f"numdrift: {self.path}: {why}; its lines wait in memory", file=sys.stderr)
        else:
            self._waiting, self._waiting_bytes = [], 0

    def _wait(self, line: bytes, error: OSError) -> None:
        if error.errno not in frames.FULL or self._waiting_bytes + len(line) > WAITING_BYTES:
            raise error
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def failed(self, step: int, text: str) -> None:
        """Write a notice that the recording has failed. If it cannot be written, print it."""
        try:
            self.write("notice", step=step, text=text, broken=True)
        except OSError:
            print(f"numdrift: {text}", file=sys.stderr)


def loss_to_json(value: float) -> float | str:
    """Return a loss as a JSON value: the exact number (with up to 17 digits), or the text nan, inf or -inf."""
    return value if value - value == 0.0 else str(value)


class FrameFile(AppendFile):
    """A file of frames of raw bytes."""

    def frame(self, table: int, step: int, payload: Sequence[Any], length: int) -> int:
        return self.append([frames.header(table, step, length), *payload, frames.trailer(table, step)])


def bytes_of(tensor: torch.Tensor) -> Any:
    """Return a buffer with a CPU tensor's elements in row-major order.

    A contiguous tensor is not copied. The buffer keeps its memory alive.
    """
    flat = tensor.detach().resolve_conj().resolve_neg()
    flat = flat if flat.is_contiguous() else flat.contiguous()
    size = flat.numel() * flat.element_size()
    if not size:
        return b""
    buffer = (ctypes.c_char * size).from_address(flat.data_ptr())
    buffer._tensor = flat  # type: ignore[attr-defined]
    return buffer
