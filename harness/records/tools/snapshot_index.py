"""The index of a run's snapshots: which were begun, and which were completed. This module does not import torch.

    {"event": "begin", "file": "0-forward-step000003-execution000003.safetensors", "bytes": 120400, ...}
    {"event": "end", "file": "0-forward-step000003-execution000003.safetensors", "bytes": 121016}
    {"event": "incomplete", "file": "...", "reason": "No space left on device"}

The `begin` line is written before the file. So a snapshot without an `end` or `incomplete` line was cut off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = "snapshots"
INDEX = "snapshots.jsonl"

CUT_OFF = "the run ended while the snapshot was being written"


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A snapshot of a run in the index.

    size: the size of the snapshot's file in bytes; an estimate if the snapshot is incomplete
    incomplete: the reason why the snapshot is incomplete, "" if it is complete
    facts: the other fields of the snapshot's `begin` line
    """

    path: Path
    size: int
    incomplete: str
    facts: dict[str, Any] = field(default_factory=dict)


def entries_of(run: Path) -> list[SnapshotEntry]:
    """Return the snapshots of a run in the order in which they were begun. If a file was written twice, its last entry
    counts."""
    begun: dict[str, dict[str, Any]] = {}
    ends: dict[str, dict[str, Any]] = {}
    for line in _lines(run / FOLDER / INDEX):
        name = Path(str(line.get("file", ""))).name
        if line.get("event") == "begin":
            begun[name] = line
            ends.pop(name, None)
        elif name in begun:
            ends[name] = line
    return [_entry(run / FOLDER / name, line, ends.get(name)) for name, line in begun.items()]


def _entry(path: Path, begun: dict[str, Any], end: dict[str, Any] | None) -> SnapshotEntry:
    facts = {name: value for name, value in begun.items() if name not in ("event", "file", "bytes")}
    if end is None:
        return SnapshotEntry(path, begun["bytes"], CUT_OFF, facts)
    if end["event"] == "incomplete":
        return SnapshotEntry(path, begun["bytes"], str(end.get("reason", "")), facts)
    missing = "" if path.exists() else "its file is missing"
    return SnapshotEntry(path, end["bytes"], missing, facts)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("bytes", 0), int):
                yield event
