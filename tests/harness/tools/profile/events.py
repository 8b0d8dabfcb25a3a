"""Chrome traces as torch.profiler writes them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAIN, WORKER = (7, 7), (7, 8)


def slice_(
    name: str,
    start: float,
    time: float,
    category: str = "cpu_op",
    thread: tuple[int, int] = MAIN,
    arguments: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A complete event; times in microseconds."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": thread[0],
        "tid": thread[1],
        "ts": start,
        "dur": time,
        "args": dict(arguments or {}),
    }


def range_(name: str, start: float, time: float) -> dict[str, Any]:
    return slice_(name, start, time, "user_annotation")
