"""Files of events that a guest writes beside the journal: one JSON object a line, appended when it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def append_event(path: Path, event: str, **fields: Any) -> None:
    """Append one line; it survives a kill of the process. Raises OSError (disk full)."""
    line = json.dumps({"event": event, **fields}, separators=(",", ":"))
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def complete_events(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines; the last one of a killed process may be torn. Raises OSError, and ValueError for a
    line that is no JSON."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)
