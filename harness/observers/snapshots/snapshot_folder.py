"""The snapshots of a run as they are written: a file each, and their index."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...records.execution_facts import MIB, Execution, in_mib
from ...records.frames import append_event
from ...records.snapshot_index import FOLDER, INDEX
from .snapshot_file import write_snapshot
from .snapshot_record import Snapshot

PER_CALL, BESIDES = 600, 4096
"""Bytes that one call takes in a file, and all that is in it besides calls and values; measured were 260 to
550 a call."""

RESERVE = 16 * MIB
"""Bytes of a disk that are left to the training and its recording."""


class SnapshotFolder:
    """The writing side. Limits are bytes and files, None for none."""

    def __init__(self, run: Path, limit_size: int | None, limit_count: int | None) -> None:
        self.path = run / FOLDER
        self.written = 0
        self.count = 0
        self._limit_size = limit_size
        self._limit_count = limit_count

    def refusal(self, size: int) -> str:
        """Why there is no room for a snapshot of so many bytes, "" where there is."""
        if self._limit_count is not None and self.count >= self._limit_count:
            return f"{self._limit_count} are taken, which is the limit (--limit-count)"
        if self._limit_size is not None and self.written + size > self._limit_size:
            return (
                f"it takes about {in_mib(size)}, and of the {in_mib(self._limit_size)} that --limit-size allows "
                f"{in_mib(self.written)} are taken"
            )
        there = self.path if self.path.exists() else self.path.parent
        free = shutil.disk_usage(there).free
        if size + RESERVE > free:
            takes = f"it takes about {in_mib(size)}, and " if size else ""
            return f"{takes}{in_mib(free)} are free there, of which {in_mib(RESERVE)} are left to the recording"
        return ""

    def write(self, snapshot: Snapshot) -> Path:
        """Write a snapshot. Raises OSError; it is marked incomplete then."""
        execution = snapshot.execution
        path = self.path / execution.file
        self.path.mkdir(parents=True, exist_ok=True)
        self._note("begin", path, bytes=size_of(snapshot), held=list(snapshot.held), **_facts(execution, snapshot))
        try:
            write_snapshot(path, snapshot)
        except OSError as error:
            with suppress(OSError):
                self._note("incomplete", path, reason=error.strerror or str(error))
            raise
        size = path.stat().st_size
        self.written, self.count = self.written + size, self.count + 1
        self._note("end", path, bytes=size)
        return path

    def _note(self, event: str, path: Path, **facts: Any) -> None:
        append_event(self.path / INDEX, event, file=path.name, **facts)


def size_of(snapshot: Snapshot) -> int:
    """What a snapshot takes on disk, about."""
    return snapshot.bytes + PER_CALL * len(snapshot.tape.calls) + BESIDES


def _facts(execution: Execution, snapshot: Snapshot) -> dict[str, Any]:
    return {
        "graph": execution.name,
        "phase": execution.phase,
        "step": execution.step,
        "execution": execution.count,
        "device_index": execution.device_index,
        "reason": snapshot.reason,
        "calls": len(snapshot.tape.calls),
        "unplayable": snapshot.unplayable,
    }
