"""The request for a trace of a run, the names of a trace's ranges, and `profile.json`: where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...errors import JournalError
from ..codec import FileForm, json_text, put
from ..run.step_selection import StepSelection
from ..run.user_option import MEBIBYTE
from .device_profile import DeviceProfile

# `profile.json`: the time of one run's traced steps.

SCHEMA = 2
TABLES = "profile.json"
TRACE = "trace.json"


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """A phase: its time on the script's thread in all traced steps, and its `share` of the steps' total time."""

    phase: str
    milliseconds: float
    share: float


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block that the script itself names, with the time of everything within the block.

    `milliseconds` is the time of the host. `device_milliseconds` is the device's time for the work that was launched
    within the block, None if there are no device times.
    """

    block: str
    calls: int
    milliseconds: float
    share: float
    device_milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """All calls of an op that agree in kind and place.

    `milliseconds` is the time of these calls on the host, without the time of the ops that they call.

    `kind` is as in `step_times.OpKey`; `module` and `line` are "" if they are unknown.
    """

    op: str
    kind: str
    phase: str
    module: str
    line: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """The executions of lazy graphs that have the same `cause`: `mark_step`, or an op that needed a value."""

    cause: str
    line: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class UntracedStep:
    """A step that was not traced. `compiled` is the number of graphs compiled in it, None if they are not counted."""

    step: int
    seconds: float
    compiled: int | None


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The sources of a generated kernel: the ops that it computes, with their modules and lines."""

    name: str
    ops: Sequence[str]
    modules: Sequence[str]
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class RunProfile:
    """The profile of one mode.

    type: the kind of the trace, as in `TraceRequest`
    asked: the steps that the user requested
    steps: the traced steps
    partial: whether the tracing stopped before the last traced step ended
    untraced: the steps before and after the traced steps
    over: the reason why the tracing ended
    bytes: the size of the trace files
    step_milliseconds: the duration of each traced step, excluding the time taken by the recording
    compiled: the number of graphs compiled in each traced step, None if they are not counted
    own_milliseconds: the time of the recording's own work, which is not included in any of the other times
    device: the device's times, None for a mode that runs on the host; all times outside of `device` are the host's
    problem: the reason why there is no trace
    """

    mode: str
    type: str
    asked: str
    steps: Sequence[int]
    partial: bool
    untraced: Sequence[UntracedStep]
    over: str
    bytes: int
    step_milliseconds: Sequence[float]
    own_milliseconds: float
    phases: Sequence[PhaseRow]
    blocks: Sequence[BlockRow]
    ops: Sequence[OpRow]
    executions: Sequence[ExecutionRow]
    kernels: Sequence[KernelRow]
    notices: Sequence[str]
    problem: str = ""
    compiled: Sequence[int | None] = field(default_factory=list)
    device: DeviceProfile | None = None
    schema: int = SCHEMA

    @property
    def milliseconds(self) -> float:
        """The total time of the traced steps, excluding the time taken by the recording."""
        return sum(self.step_milliseconds)

    @property
    def has_device_times(self) -> bool:
        return self.device is not None and not self.device.problem

    @property
    def device_milliseconds(self) -> float:
        """The total time of the device's work in the traced steps."""
        return 0.0 if self.device is None else self.device.milliseconds

    def write(self, path: Path) -> None:
        put(path, json_text(self, indent=1))


def _without_device_ops(content: dict[str, Any]) -> dict[str, Any]:
    """Migrate schema 1, which listed a device's work among the ops, with its time in the column of the host's time."""
    rows: Any = content.get("ops", [])
    return {**content, "ops": [row for row in rows if row.get("kind") != "device"]}


FORM = FileForm(RunProfile, SCHEMA, {1: _without_device_ops})


def read_profile(path: Path) -> RunProfile:
    """Read a profile. Raises JournalError."""
    try:
        return FORM.read(path)
    except FileNotFoundError as error:
        raise JournalError(path, f"cannot be read: {error}") from error


# The traced part of a run, and its files.

Kind = Literal["trace", "operator"]

DEFAULT_STEPS = StepSelection(((3, 5),))
"""The steps that are traced by default. Compilers have finished by step 3: the last one is TorchScript, which optimises
a lazy graph when it executes the graph for the third time."""

PROFILE = "profile"
WORKING = "working"
EVENTS = "events.jsonl"


def lines_of(trace: Path) -> Path:
    """Return the path of the file beside a step's trace that maps the External ids of ops to the script's lines."""
    return trace.with_suffix(".lines")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A request for a trace.

    The kind `trace` records blocks, modules and the runtime; `operator` adds the place and the shapes of each call of
    an operator. The tracing ends with the step in which it has taken `duration` seconds or its files have reached
    `limit` bytes.
    """

    kind: Kind = "trace"
    steps: StepSelection = field(default_factory=lambda: DEFAULT_STEPS)
    duration: float | None = None
    limit: int = 256 * MEBIBYTE


# The names of a trace's ranges.

PHASE = "phase: "
MODULE = "module: "
STEP = "ProfilerStep#"
"""The beginning of a step's name. torch's own tools recognise it."""

CUT = "mark_step"
OWN = "numdrift"
"""The phase of the work that the recording itself does between the script's steps."""

FORWARD = "forward"
UNTRAINED = "no gradients"
"""The phases that begin with a call of a model. FORWARD begins with the first call with gradients in a step, and
UNTRAINED with a call without gradients before it (an evaluation)."""
