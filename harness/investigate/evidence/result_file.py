"""The files beside the runs in which questions keep their results, so that a later judgement finds them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ...records.codec import json_text

Result = TypeVar("Result")

SCHEMA = 1


def write_result(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result of plain values."""
    path.write_text(json_text({"schema": SCHEMA, **content}, indent=1), encoding="utf-8")


def read_result(path: Path, read: Callable[[dict[str, Any]], Result | None]) -> Result | None:
    """Return the file's content, converted by `read`; None if there is no file, or if it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return read(content) if content.pop("schema") == SCHEMA else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
