"""The launch of each piece of a device's work in a traced step, and the host's waits for the device.

A piece and the runtime call that launched it (`cudaLaunchKernel`) share a `correlation`; the pieces of a graph of
kernels all have the correlation of one call. The call is on a thread of the host, within the op that made it. In a
trace without runtime calls, such as that of a plug-in, a piece names its op by `External id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.tools.backend_work import FROM_DEVICE, TO_DEVICE
from ...records.tools.device_profile import WorkSort
from ...records.tools.profile_record import OWN
from .step_times import SlicePlace, TraceReading
from .trace_slices import ON_DEVICE, Slice, is_runtime_call, slices_of

EXTERNAL = "External id"
CORRELATION = "correlation"

WAITS = re.compile(
    r"synchroni[sz]e|eventwait|eventswait|queuefinish|waitforevents|^(?:cuda|hip)(?:free|memcpy)$", re.IGNORECASE
)
"""Runtime calls of CUDA, ROCm and Level Zero in which the host waits; `cudaFree` waits for the whole device."""

WAITS_ON_DEVICE = re.compile(r"streamwait", re.IGNORECASE)
"""Calls that make a stream wait for another stream; the host does not wait."""

DIRECTION = re.compile(r"\b([A-Z])(?:to|2)([A-Z])\b|(Host|Device)To(Host|Device)")
"""The direction in the name of a copy: `Memcpy HtoD (Pageable -> Device)`, `Memcpy M2D`, `CopyDeviceToHost`."""

IN_HOST = "HM"
"""The letters for host memory in a copy's name. D (device), S (shared), A (array) and P (peer) are device memory."""

PINNED = "Pinned"


@dataclass(frozen=True, slots=True)
class DevicePiece:
    """One piece of a device's work in the step.

    call: the runtime call that launched it, None if the trace has no such call
    launched: the time of the launch in microseconds
    op: the op that launched it, "" if it was launched outside of ops
    """

    slice: Slice
    sort: WorkSort
    device: int
    call: Slice | None
    launched: float
    op: str
    place: SlicePlace

    @property
    def bytes(self) -> int:
        return int(self.slice.arguments.get("bytes") or 0) if self.sort == "copy" else 0

    @property
    def direction(self) -> str:
        return direction_of(self.slice.name) if self.sort == "copy" else ""


@dataclass(frozen=True, slots=True)
class HostWait:
    """One wait of the host: `op` is the outermost op that caused it."""

    call: Slice
    op: str
    place: SlicePlace


class DeviceLaunches:
    """The device's work in one trace.

    pieces: the step's own work
    all: the slices of all work, including work that the previous step or numdrift's own reading launched
    """

    def __init__(self, events: Sequence[Mapping[str, Any]], host: TraceReading) -> None:
        self._host = host
        calls = {str(event.get("cat")) for event in events if is_runtime_call(str(event.get("cat")))}
        self.calls = slices_of(events, calls)
        self._called: dict[Any, Slice] = {}
        # A driver call may have the correlation of the runtime call around it. The outer call comes first.
        for call in self.calls:
            self._called.setdefault(call.arguments.get(CORRELATION), call)
        for nothing in (None, 0):
            self._called.pop(nothing, None)
        self._numbered = {
            host_slice.arguments[EXTERNAL]: host_slice
            for host_slice in host.places
            if host_slice.arguments.get(EXTERNAL) is not None
        }
        self.all = slices_of(events, ON_DEVICE)
        self.pieces = [piece for work in self.all if (piece := self._piece(work)) is not None]

    def waits(self) -> Iterator[HostWait]:
        """Yield the waits of the host within the step, without numdrift's own."""
        copies = {
            id(piece.call) for piece in self.pieces if piece.direction == FROM_DEVICE and PINNED not in piece.slice.name
        }
        for call in self.calls:
            waits = WAITS.search(call.name) and not WAITS_ON_DEVICE.search(call.name)
            if not (waits or id(call) in copies) or not self._is_of_step(call.start):
                continue
            around = self._around(call)
            place = self._place(around, call.start)
            if place.phase != OWN:
                yield HostWait(call, self._outermost_op(around), place)

    def _piece(self, work: Slice) -> DevicePiece | None:
        """Return the work of a slice as a piece, or None if it is not the step's own work."""
        call = self._called.get(work.arguments.get(CORRELATION))
        around = self._around(call) if call is not None else self._numbered.get(work.arguments.get(EXTERNAL))
        launched = call.start if call is not None else around.start if around is not None else work.start
        if not self._is_of_step(launched):
            return None
        place = self._place(around, launched)
        if place.phase == OWN:
            return None
        if call is around is None:
            # A piece without a link to a call began in the step, but the phase of its launch is not known.
            place = SlicePlace()
        return DevicePiece(
            work, ON_DEVICE[work.category], device_of(work), call, launched, self._innermost_op(around), place
        )

    def _around(self, call: Slice) -> Slice | None:
        """Return the innermost slice of the host around a runtime call."""
        innermost = self._host.innermost(call.thread, call.start)
        # If the profiler did not know the thread's number while tracing, the call is not on the thread's row.
        return innermost if innermost is not None else self._numbered.get(call.arguments.get(EXTERNAL))

    def _place(self, around: Slice | None, instant: float) -> SlicePlace:
        return self._host.places[around] if around is not None else SlicePlace(self._host.phase_at(instant))

    def _is_of_step(self, instant: float) -> bool:
        step = self._host.step
        return step is not None and step.start <= instant < step.end

    def _innermost_op(self, around: Slice | None) -> str:
        for ancestor in [] if around is None else [around, *around.ancestors()]:
            op = self._host.op_of(ancestor)
            if op is not None:
                return op
        return ""

    def _outermost_op(self, around: Slice | None) -> str:
        outermost = ""
        for ancestor in [] if around is None else [around, *around.ancestors()]:
            if "::" in ancestor.name and not ancestor.name.startswith("autograd::"):
                outermost = self._host.op_of(ancestor) or outermost
        return outermost


def direction_of(name: str) -> str:
    """Return the direction of a copy from its name, "" if it is within the device or the name has no direction."""
    match = DIRECTION.search(name)
    if match is None:
        return ""
    source, target = (match[1] or match[3])[0], (match[2] or match[4])[0]
    from_host, to_host = source in IN_HOST, target in IN_HOST
    return "" if from_host == to_host else TO_DEVICE if from_host else FROM_DEVICE


def device_of(work: Slice) -> int:
    """Return the number of the device, which is the number of its process in the trace."""
    number = work.arguments.get("device", work.thread[0])
    return number if isinstance(number, int) else 0
