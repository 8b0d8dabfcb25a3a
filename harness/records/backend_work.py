"""A backend's account of its work: supported and unsupported operators, compiled and executed graphs, transfers, and
the numbers of them by step.

Guests write these records, and reports read them without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

WorkKind = Literal["compile", "execute", "transfer", "fallback"]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """An execution of an operator on a backend, and whether the backend itself supports it.

    `kind` is the operator (`aten::mul`), `configuration` the part of its call that decides about support, readable, as
    `complex64[4], complex64[4]`. `call` is the line of the script that it comes from (`train.py:24`, "" if that is not
    known). `instructions` are the backend's code for it, in its own language. For an unsupported one, `failure_at` says
    which part of the backend refused (`lazy core`, `inductor lowering`) and `reason` why; both are "" for a supported
    one. `failing` are the unsupported ones of the instructions, empty if all are."""

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
    """A piece of a backend's work: a graph compiled or executed, a transfer, an operator that fell back to the CPU.

    `name` is that of the graph or operator, `seconds` its duration (None if that cannot be measured), `size` the
    operators of the graph or the bytes of the transfer, `cached` whether a compilation was answered from a cache, and
    `call` the line of the script. `cause` is the reason why a function was compiled again. For a transfer it is `item`
    if Python got one value, and `non-blocking` if the host need not wait. It is "" if it is not known or there is none.
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
    """A backend's support of an operator in one configuration: `reason` is "" if it supports it."""

    reason: str = ""
    failure_at: str = ""
    instructions: tuple[str, ...] = field(default=())

    @property
    def supported(self) -> bool:
        return not self.reason


# The written form of a backend's work, as it is read again. Needs no torch.

SCHEMA = 1
FILE = "metrics.jsonl"

SETUP, REST = "setup", "rest"
"""The work before the first forward, and after the last step that has ended; it belongs to no step."""

WORKED: tuple[WorkKind, ...] = ("compile", "execute", "transfer")
"""The kinds of work whose times are parts of a step's; a fallback consists of them."""

PHASES = ("forward", "backward", "optimizer")

RECORDING = "recording"
"""The time in which numdrift reads and writes what it records."""

TO_DEVICE, FROM_DEVICE = "to device", "from device"
"""The names of transfers."""

BREAK = "graph break"
"""The beginning of the name of a fallback that is a graph break; the reason follows."""

FALLBACK = "fallback "
"""The beginning of the name of a graph that was executed because an op falls back; the op follows."""

ITEM, NON_BLOCKING = "item", "non-blocking"
READS = ("read", ITEM)
"""The names of graphs that were executed because a value was read.

`item` is `.item()`, `float(tensor)`, `if tensor`.
"""


@dataclass(frozen=True, slots=True)
class TimedWork:
    """A piece of work that began `at` seconds after the script."""

    work: Work
    at: float


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """A step, or the work that belongs to none: `name` is "setup", "rest" or "" for a step.

    It began `at` seconds after the script and took `seconds`; `phases` has the seconds of its parts by name. `counters`
    has the increases of the backend's counters, `memory` the bytes at the end of the step (see
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
        return (timed.work for timed in self.work if timed.work.kind == kind)

    def seconds_of(self, kind: WorkKind) -> float:
        return sum(work.seconds or 0.0 for work in self.of(kind))

    @property
    def recording(self) -> float:
        return self.phases.get(RECORDING, 0.0)

    @property
    def other(self) -> float:
        """The time outside of backend work and recording: Python, tracing, ops outside of graphs, loading data."""
        return max(0.0, self.seconds - sum(map(self.seconds_of, WORKED)) - self.recording)
