"""The records of a backend's work: operators and their support, compiled and executed graphs, transfers, step counts.

Guests write these records, and reports read them without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

WorkKind = Literal["compile", "execute", "transfer", "fallback"]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """A call of an operator on a backend, and whether the backend itself supports it.

    kind: the operator, such as `aten::mul`
    configuration: the part of the call that determines support, such as `complex64[4], complex64[4]`
    call: the line of the script that made the call (`train.py:24`), "" if it is unknown
    instructions: the backend's code for the call, in the backend's language
    failure_at: the part of the backend that refused the call (`lazy core`, `inductor lowering`), "" if it is supported
    reason: the reason for the refusal, "" if the call is supported
    failing: the unsupported instructions, empty if all are unsupported
    """

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

    name: the name of the graph or operator, or the direction of the transfer
    seconds: the work's duration, None if it cannot be measured
    size: the number of operators in the graph, or of bytes in the transfer
    cached: whether a compilation was served from a cache
    call: the line of the script that caused the work
    cause: for a compilation, the reason why a function was compiled again; for a transfer, `item` if Python got one
        value, and `non-blocking` if the host need not wait; "" if there is no cause or it is unknown
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
    """A backend's support of an operator in one configuration; `reason` is "" if the operator is supported."""

    reason: str = ""
    failure_at: str = ""
    instructions: tuple[str, ...] = field(default=())

    @property
    def supported(self) -> bool:
        return not self.reason


# The records of a backend's work as reports read them.

SCHEMA = 1
FILE = "metrics.jsonl"

SETUP, REST = "setup", "rest"
"""The names of the work that belongs to no step: before the first forward, and after the last complete step."""

WORKED: tuple[WorkKind, ...] = ("compile", "execute", "transfer")
"""The kinds of work whose times are parts of a step's time. Fallbacks are not counted: they consist of such work."""

PHASES = ("forward", "backward", "optimizer")

RECORDING = "recording"
"""The name of the part of a step in which numdrift records the training."""

TO_DEVICE, FROM_DEVICE = "to device", "from device"
"""The names of transfers."""

BREAK = "graph break"
"""The beginning of the name of a fallback that is a graph break. The reason for the break follows."""

FALLBACK = "fallback "
"""The beginning of the name of a graph that was executed because an op fell back. The op's name follows."""

ITEM, NON_BLOCKING = "item", "non-blocking"
READS = ("read", ITEM)
"""The names of graphs that were executed because a value was read.

The name is `item` after `.item()`, `float(tensor)` or `if tensor`, and `read` after any other read.
"""


@dataclass(frozen=True, slots=True)
class TimedWork:
    """A piece of work that began `at` seconds after the script began."""

    work: Work
    at: float


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """The metrics of a step, or of the work that belongs to no step.

    name: "setup" or "rest" for work outside of steps, "" for a step
    at: the seconds from the script's beginning to the step's beginning
    seconds: the step's duration
    phases: the seconds that each part of the step took, by the part's name
    counters: the increases of the backend's counters during the step
    memory: the bytes in use at the step's end (see observers/metrics_instrument.py)
    """

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
        """The seconds outside of backend work and recording: Python, tracing, ops outside of graphs, loading data."""
        return max(0.0, self.seconds - sum(map(self.seconds_of, WORKED)) - self.recording)
