"""A device's work in the traced steps of a run, as in `profile.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

WorkSort = Literal["kernel", "copy", "fill"]
"""A kernel, a copy of memory, and memory that is filled with one value."""


@dataclass(frozen=True, slots=True)
class DeviceWorkRow:
    """Pieces of a device's work that are alike in all of this: `milliseconds` is the device's time, whenever it ran.

    `name` is the full name from the device's profiler. `op` is the innermost op that launched it, "" if it was launched
    outside of ops; phase, module and line are those of the launch. `direction` is that of a copy between host and
    device (`to device`, `from device`), "" for any other piece, and `bytes` is the total of the copies.
    """

    name: str
    sort: WorkSort
    op: str
    phase: str
    module: str
    line: str
    calls: int
    milliseconds: float
    direction: str = ""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Waits of the host for the device that are alike in all of this: `milliseconds` are the host's.

    `call` is that of the device's runtime (`cudaStreamSynchronize`, or a copy to memory that is not pinned), `op` the
    outermost op that made it (`aten::item`), "" if the script asked for it itself.
    """

    call: str
    op: str
    phase: str
    module: str
    line: str
    calls: int
    milliseconds: float


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """A traced step on one device, by its number.

    The step's work is what was launched in it, even if it ends later. `milliseconds` is the sum of its pieces,
    `busy_milliseconds` the time in which at least one of them ran. `idle_milliseconds` is the time from the step's
    beginning to its end, or to the end of its work, in which none ran and numdrift recorded nothing. `launches` are the
    calls that launched `kernels` (a graph of kernels is one), None if the trace does not have them.
    """

    step: int
    device: int
    milliseconds: float
    busy_milliseconds: float
    idle_milliseconds: float
    kernels: int
    launches: int | None


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The memory of a device in a step, in bytes: allocated by tensors, and reserved for them by torch.

    The peaks are those of the step. If the step was traced they come from each allocation in it, otherwise from the
    peak since the script began, if that was reached in this step; None if neither is known. The peaks `so_far` are
    since the script began, None if the device does not count them.
    """

    step: int
    device: int
    allocated_peak: int | None
    reserved_peak: int | None
    allocated_so_far: int | None = None
    reserved_so_far: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The device's side of a profile: `kind` is that of the device (`cuda`), `problem` says why there are no times."""

    kind: str
    problem: str = ""
    work: Sequence[DeviceWorkRow] = field(default_factory=list)
    waits: Sequence[WaitRow] = field(default_factory=list)
    steps: Sequence[DeviceStep] = field(default_factory=list)
    memory: Sequence[DeviceMemory] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        """The total time of all pieces of the traced steps."""
        return sum(row.milliseconds for row in self.work)
