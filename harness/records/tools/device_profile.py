"""The work of a device in the traced steps of a run, as in `profile.json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

WorkSort = Literal["kernel", "copy", "fill"]
"""The sorts of a device's work: a kernel, a copy of memory, and a fill of memory with one value."""


@dataclass(frozen=True, slots=True)
class DeviceWorkRow:
    """All pieces of a device's work that agree in name, sort, place of the launch and direction.

    name: the work's full name from the device's profiler
    op: the innermost op that launched the work, "" if it was launched outside of ops
    phase, module, line: the place of the launch
    direction: the direction of a copy between host and device (`to device`, `from device`), "" for any other work
    milliseconds: the device's total time for the work, even if the work ran after the launching step
    bytes: the total size of the copies
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
    """All waits of the host for the device that agree in call, op and place. `milliseconds` is the time of the host.

    `call` is the call of the device's runtime: `cudaStreamSynchronize`, or a copy to memory that is not pinned. `op` is
    the outermost op that made the call (`aten::item`), "" if the script itself made it.
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
    """A traced step on the device with number `device`.

    The step's work is all work that was launched in the step, even if the work ends later.

    milliseconds: the total time of the pieces of work
    busy_milliseconds: the time in which at least one piece ran
    idle_milliseconds: the time in which no piece ran and numdrift recorded nothing, from the step's beginning to the
        step's end or, if that is later, the end of the step's work
    kernels: the number of kernels
    launches: the number of calls that launched these kernels (one for a graph of kernels), None if the trace lacks them
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

    `allocated_peak` and `reserved_peak` are the peaks in the step. For a traced step they come from the step's
    allocations. For any other step they are known only if the peak since the script's beginning was reached in the
    step, and are None otherwise. The peaks `so_far` are those since the script's beginning, None if the device does not
    count them.
    """

    step: int
    device: int
    allocated_peak: int | None
    reserved_peak: int | None
    allocated_so_far: int | None = None
    reserved_so_far: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The device's side of a profile.

    `kind` is the device's type (`cuda`), `problem` the reason why there are no times, "" if there are.
    """

    kind: str
    problem: str = ""
    work: Sequence[DeviceWorkRow] = field(default_factory=list)
    waits: Sequence[WaitRow] = field(default_factory=list)
    steps: Sequence[DeviceStep] = field(default_factory=list)
    memory: Sequence[DeviceMemory] = field(default_factory=list)

    @property
    def milliseconds(self) -> float:
        """The total time of all pieces of work in the traced steps."""
        return sum(row.milliseconds for row in self.work)
