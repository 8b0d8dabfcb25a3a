"""What a backend says of its work: operators that it could do or not, graphs compiled and executed, transfers, and what
of it is counted by step.

Guests write these records down, and reports read them without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

WorkKind = Literal["compile", "execute", "transfer", "fallback"]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One execution of an operator on a backend, and whether the backend itself could do it.

    `kind` is the operator (`aten::mul`), `configuration` what of its call decides about support, readable, as
    `complex64[4], complex64[4]`. `call` is the line of the script that it comes from (`train.py:24`, "" where
    that is not known). `instructions` are what the backend made of it, in its own language. Where the backend
    could not do it, `failure_at` says which part of the backend refused (`lazy core`, `inductor lowering`)
    and `reason` why; both are "" for a supported one. `failing` are those of the instructions that it could
    not do, empty where that is all of them."""

    kind: str
    configuration: str
    call: str = ""
    instructions: tuple[str, ...] = ()
    failure_at: str = ""
    reason: str = ""
    failing: tuple[str, ...] = ()

    @property
    def supported(self) -> bool:
        return not self.failure_at


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of a backend's work: a graph compiled or executed, a transfer, an operator that fell back to the CPU.

    `name` is that of the graph or operator, `seconds` how long it took (None where that cannot be measured), `size` the
    operators of the graph or the bytes of the transfer, `cached` whether a compilation was answered from a cache, and
    `call` the line of the script. `cause` is why a function was compiled again; of a transfer it is `item` where Python
    got one value, and `non-blocking` where the host need not wait; "" where it is not known or there is none.
    """

    kind: WorkKind
    name: str
    seconds: float | None = None
    size: int | None = None
    cached: bool | None = None
    call: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class SupportAnswer:
    """Whether a backend can do an operator in one configuration: `reason` is "" where it can."""

    reason: str = ""
    failure_at: str = ""
    instructions: tuple[str, ...] = field(default=())

    @property
    def supported(self) -> bool:
        return not self.reason


# What is written of a backend's work, as it is read again. Needs no torch.

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

ITEM, NON_BLOCKING = "item", "non-blocking"
READS = ("read", ITEM)
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
    observers/metrics_instrument.py)."""

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
