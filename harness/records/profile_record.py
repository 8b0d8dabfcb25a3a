"""What of a run is traced, by which names a trace's ranges are known again, and `profile.json`: where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import JournalError
from .codec import FileForm, json_text, of_fields, put, read_fields
from .device_profile import DeviceProfile
from .step_selection import StepSelection

# `profile.json`: where the time of one run's traced steps went.

SCHEMA = 2
TABLES = "profile.json"
TRACE = "trace.json"


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """`milliseconds` of all traced steps together on the script's thread; `share` is of what they took."""

    phase: str
    milliseconds: float
    share: float


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A block that the script names, the time of what is within it included: the host's, and the device's for what was
    launched within it (None where there are no times of a device)."""

    block: str
    calls: int
    milliseconds: float
    share: float
    device_milliseconds: float | None = None


@dataclass(frozen=True, slots=True)
class OpRow:
    """Ops that are alike in all of this: `milliseconds` is their own time on the host, without that of the ops that
    they call.
    `kind` is as in `step_times.OpKey`; `module` and `line` are "" where they are not known."""

    op: str
    kind: str
    phase: str
    module: str
    line: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class ExecutionRow:
    """What made lazy graphs be executed: `mark_step`, or an op that needed a value."""

    cause: str
    line: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class UntracedStep:
    """A step that was not traced, and how many graphs were compiled in it (None where that is not counted)."""

    step: int
    seconds: float
    compiled: int | None


@dataclass(frozen=True, slots=True)
class KernelRow:
    """Of what a generated kernel was made."""

    name: str
    ops: Sequence[str]
    modules: Sequence[str]
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class RunProfile:
    """One mode's. `steps` are those that were traced, the last one maybe not to its end (`partial`); `untraced` are
    those before and after; `over` says why the tracing ended; `step_milliseconds` is what each traced step took and
    `compiled` how many graphs were compiled in it (None where that is not counted),
    `own_milliseconds` what the recording took besides. `device` is None for a mode that runs on the host, whose times
    all others are. `problem` says why there is no trace."""

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
        """What the traced steps took together, without the recording."""
        return sum(self.step_milliseconds)

    @property
    def has_device_times(self) -> bool:
        return self.device is not None and not self.device.problem

    @property
    def device_milliseconds(self) -> float:
        """What all pieces of the device's work in the traced steps took together."""
        return 0.0 if self.device is None else self.device.milliseconds

    def write(self, path: Path) -> None:
        put(path, json_text(self, indent=1))


def _without_device_ops(content: dict[str, Any]) -> dict[str, Any]:
    """Schema 1 counted what ran on a device among the ops, so that its time was in one column with the host's."""
    rows: Any = content.get("ops", [])
    return {**content, "ops": [row for row in rows if row.get("kind") != "device"]}


FORM = FileForm(RunProfile, SCHEMA, {1: _without_device_ops})


def read_profile(path: Path) -> RunProfile:
    """Raises JournalError."""
    try:
        return FORM.read(path)
    except FileNotFoundError as error:
        raise JournalError(path, f"cannot be read: {error}") from error


# What of a run is traced, and where its files are.

Kind = Literal["trace", "operator"]

DEFAULT_STEPS = StepSelection(((3, 5),))
"""Compilers are done by then: TorchScript optimises a lazy graph when it runs for the third time."""

PROFILE = "profile"
WORKING = "working"
EVENTS = "events.jsonl"
MEBIBYTE = 2**20


def lines_of(trace: Path) -> Path:
    """The file beside the trace of a step that has the script's lines, by the External ids of ops."""
    return trace.with_suffix(".lines")


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """`trace` has blocks, modules and the runtime, `operator` besides where each operator is called, with which shapes.

    The tracing ends with the step in which `duration` seconds are over, or the files have reached `limit` bytes.
    """

    kind: Kind = "trace"
    steps: StepSelection = field(default_factory=lambda: DEFAULT_STEPS)
    duration: float | None = None
    limit: int = 256 * MEBIBYTE

    @property
    def last(self) -> int | None:
        """The last step that is asked for; None where no step is the last."""
        ends = [last for _, last in self.steps.ranges]
        return None if not ends or None in ends else max(last for last in ends if last is not None)

    def to_json(self) -> dict[str, object]:
        return of_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> TraceRequest:
        """Raises Unreadable."""
        return read_fields(cls, data)


# The names by which a trace's ranges are known again.

PHASE = "phase: "
MODULE = "module: "
STEP = "ProfilerStep#"
"""torch's own tools know a step by this."""

CUT = "mark_step"
OWN = "numdrift"
"""The phase of what the recording itself does between the script's steps."""

FORWARD = "forward"
UNTRAINED = "no gradients"
"""The phases that begin with the first call of a model with gradients, and with one before it that has none,
an evaluation."""
