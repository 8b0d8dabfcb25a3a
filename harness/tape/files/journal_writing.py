"""The writing side of a journal: append-only files without buffers, with one system call per record where possible.

The operating system holds everything that was written, so a kill loses at most the record that is being written.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...records import frames

RELEASE_AFTER = 1 << 20
"""The number of bytes appended to a file before its pages are released.

A recording must not push the training's data out of the page cache. Where fresh pages are slow, as on a virtual
machine, the release also saves time: 3.2 MB appended every 50 ms take 1.4 ms instead of 3.4 to 4.3 ms."""

MOST_PARTS = 512
"""The largest number of buffers in one writev; Linux allows 1024 (IOV_MAX)."""


class AppendFile:
    """An append-only file, which is opened at its first record."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._cached = 0

    def append(self, parts: Sequence[Any]) -> int:
        """Write the buffers one after the other and return the number of bytes. Raises OSError (disk full)."""
        if self._descriptor is None:
            # Without a buffer, written records survive a kill of the process. Programs that the script starts do not
            # inherit the file.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self.path, flags, 0o644)
        total = 0
        for start in range(0, len(parts), MOST_PARTS):
            pending = [memoryview(part) for part in parts[start : start + MOST_PARTS]]
            while pending:
                # writev may write only a part and end within a buffer; the next iteration writes the rest.
                written = os.writev(self._descriptor, pending)
                total += written
                while pending and written >= len(pending[0]):
                    written -= len(pending.pop(0))
                if pending and written:
                    pending[0] = pending[0][written:]
        self._cached += total
        if self._cached >= RELEASE_AFTER:
            # Ask the operating system to release its pages of this file, so that the training can use the memory. A
            # file system may ignore this advice.
            self._cached = 0
            with suppress(OSError, AttributeError):
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return total

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class EventLog(AppendFile):
    """The lines of a journal, one JSON object each."""

    def write(self, event: str, **fields: Any) -> None:
        line = json.dumps({"event": event, **fields}, separators=(",", ":"))
        self.append([line.encode() + b"\n"])

    def failed(self, step: int, text: str) -> None:
        """Write a notice that recording failed; print the notice if it cannot be written."""
        try:
            self.write("notice", step=step, text=text, broken=True)
        except OSError:
            print(f"numdrift: {text}", file=sys.stderr)


def loss_to_json(value: float) -> float | str:
    """Return a loss as a JSON value: the number itself (17 digits, exact), or the text nan, inf or -inf."""
    return value if value - value == 0.0 else str(value)


class FrameFile(AppendFile):
    """A file of frames of raw bytes."""

    def frame(self, table: int, step: int, payload: Sequence[Any], length: int) -> int:
        return self.append([frames.header(table, step, length), *payload, frames.trailer(table, step)])


def bytes_of(tensor: torch.Tensor) -> Any:
    """Return a buffer over a CPU tensor's elements in row-major order; the tensor must outlive it.

    A contiguous tensor is not copied.
    """
    flat = tensor.detach().resolve_conj().resolve_neg()
    flat = flat if flat.is_contiguous() else flat.contiguous()
    size = flat.numel() * flat.element_size()
    if not size:
        return b""
    buffer = (ctypes.c_char * size).from_address(flat.data_ptr())
    buffer._tensor = flat  # type: ignore[attr-defined]
    return buffer
