"""What is written of a backend's work, as it is read again. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .backend_work import Work, WorkKind

SCHEMA = 1
FILE = "metrics.jsonl"

SETUP, REST = "setup", "rest"
"""What was done before the first forward, and after the last step that has ended: these belong to no step."""

WORKED: tuple[WorkKind, ...] = ("compile", "execute", "transfer")
"""The kinds of work whose times are parts of a step's; a fallback consists of them."""

PHASES = ("forward", "backward", "optimizer")

RECORDING = "recording"
"""The time in which numdrift reads and writes what it records."""

TO_DEVICE, FROM_DEVICE = "to device", "from device"
"""The names of transfers."""

BREAK = "graph break"
"""Begins the name of a fallback that is a graph break; the reason follows."""

FALLBACK = "fallback "
"""Begins the name of a graph that was executed because an op falls back; the op follows."""

READS = ("read", "item")
"""The names of graphs that were executed because a value was read; `item` is `.item()`, `float(tensor)`, `if
tensor`."""


@dataclass(frozen=True, slots=True)
class TimedWork:
    """A piece of work that began `at` seconds after the script."""

    work: Work
    at: float


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """One step, or what belongs to none: `name` is "setup", "rest" or "" for a step.

    It began `at` seconds after the script and took `seconds`; `phases` has the seconds of its parts by name.
    `counters` are what the backend's counters grew by, `memory` bytes at the end of the step (see
    observing/memory.py)."""

    step: int | None
    name: str
    at: float
    seconds: float
    phases: Mapping[str, float]
    work: Sequence[TimedWork]
    counters: Mapping[str, int]
    memory: Mapping[str, int]

    def of(self, kind: WorkKind) -> Iterator[Work]:
        return (one.work for one in self.work if one.work.kind == kind)

    def seconds_of(self, kind: WorkKind) -> float:
        return sum(one.seconds or 0.0 for one in self.of(kind))

    @property
    def recording(self) -> float:
        return self.phases.get(RECORDING, 0.0)

    @property
    def other(self) -> float:
        """What is neither the backend's work nor recording: Python, tracing, ops outside of graphs, loading data."""
        return max(0.0, self.seconds - sum(map(self.seconds_of, WORKED)) - self.recording)
