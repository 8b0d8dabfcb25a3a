"""What launched each piece of a device's work in a traced step, and where the host waited for the device.

A piece is linked to the call of the runtime that launched it (`cudaLaunchKernel`) by one `correlation`; a graph of
kernels is many pieces with the correlation of one call. The call lies on a thread of the host, within the op that made
it. Where a trace has no such calls, as of a plug-in, a piece names its op by the `External id`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.backend_work import FROM_DEVICE, TO_DEVICE
from ...records.device_profile import WorkSort
from ...records.profile_record import OWN
from .step_times import SlicePlace, TraceReading
from .trace_slices import ON_DEVICE, Slice, is_runtime_call, slices_of

EXTERNAL = "External id"
CORRELATION = "correlation"

WAITS = re.compile(
    r"synchroni[sz]e|eventwait|eventswait|queuefinish|waitforevents|^(?:cuda|hip)(?:free|memcpy)$", re.IGNORECASE
)
"""Calls of runtimes in which the host waits, of CUDA, ROCm and Level Zero; `cudaFree` waits for the whole device."""

WAITS_ON_DEVICE = re.compile(r"streamwait", re.IGNORECASE)
"""Calls that have one stream wait for another, and the host for none."""

DIRECTION = re.compile(r"\b([A-Z])(?:to|2)([A-Z])\b|(Host|Device)To(Host|Device)")
"""The way of a copy in its name: `Memcpy HtoD (Pageable -> Device)`, `Memcpy M2D`, `CopyDeviceToHost`."""

IN_HOST = "HM"
"""Memory of the host by the letters of names; D (device), S (shared), A (array) and P (peer) are the device's."""

PINNED = "Pinned"


@dataclass(frozen=True, slots=True)
class DevicePiece:
    """One piece of the step's work: `call` is what launched it, None where the trace has no such call, and `launched`
    is when (in microseconds). `op` is "" outside of ops."""

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
    """One wait of the host: `op` is the outermost op that asked for it."""

    call: Slice
    op: str
    place: SlicePlace


class DeviceLaunches:
    """The device's work of one trace: `pieces` are the step's own, `all` are the slices of every piece, also of those
    that the step before had launched and that numdrift's own reading did."""

    def __init__(self, events: Sequence[Mapping[str, Any]], host: TraceReading) -> None:
        self._host = host
        calls = {str(one.get("cat")) for one in events if is_runtime_call(str(one.get("cat")))}
        self.calls = slices_of(events, calls)
        self._called: dict[Any, Slice] = {}
        for call in self.calls:  # of a call of the runtime and one of the driver within it the first is the outer one
            self._called.setdefault(call.arguments.get(CORRELATION), call)
        for nothing in (None, 0):
            self._called.pop(nothing, None)
        self._numbered = {
            one.arguments[EXTERNAL]: one for one in host.places if one.arguments.get(EXTERNAL) is not None
        }
        self.all = slices_of(events, ON_DEVICE)
        self.pieces = [piece for one in self.all if (piece := self._piece(one)) is not None]

    def waits(self) -> Iterator[HostWait]:
        """The waits of the host within the step, but for those of numdrift's own."""
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
        """The piece, None for one that is not the step's own."""
        call = self._called.get(work.arguments.get(CORRELATION))
        around = self._around(call) if call is not None else self._numbered.get(work.arguments.get(EXTERNAL))
        launched = call.start if call is not None else around.start if around is not None else work.start
        if not self._is_of_step(launched):
            return None
        place = self._place(around, launched)
        if place.phase == OWN:
            return None
        if call is around is None:
            # What is linked to nothing began in the step, and it is open in which phase it was launched.
            place = SlicePlace()
        return DevicePiece(
            work, ON_DEVICE[work.category], device_of(work), call, launched, self._innermost_op(around), place
        )

    def _around(self, call: Slice) -> Slice | None:
        """The innermost slice of the host that a call of the runtime lies in."""
        found = self._host.innermost(call.thread, call.start)
        # A thread that the profiler did not know by its number when it was traced has the call on another row.
        return found if found is not None else self._numbered.get(call.arguments.get(EXTERNAL))

    def _place(self, around: Slice | None, instant: float) -> SlicePlace:
        return self._host.places[around] if around is not None else SlicePlace(self._host.phase_at(instant))

    def _is_of_step(self, instant: float) -> bool:
        step = self._host.step
        return step is not None and step.start <= instant < step.end

    def _innermost_op(self, around: Slice | None) -> str:
        for one in [] if around is None else [around, *around.ancestors()]:
            op = self._host.op_of(one)
            if op is not None:
                return op
        return ""

    def _outermost_op(self, around: Slice | None) -> str:
        found = ""
        for one in [] if around is None else [around, *around.ancestors()]:
            if "::" in one.name and not one.name.startswith("autograd::"):
                found = self._host.op_of(one) or found
        return found


def direction_of(name: str) -> str:
    """The direction of a copy by its name, "" where it is between two places of the device or is not said."""
    match = DIRECTION.search(name)
    if match is None:
        return ""
    source, target = (match[1] or match[3])[0], (match[2] or match[4])[0]
    from_host, to_host = source in IN_HOST, target in IN_HOST
    return "" if from_host == to_host else TO_DEVICE if from_host else FROM_DEVICE


def device_of(work: Slice) -> int:
    """The number of the device; a trace has the work of each device in a process of that number."""
    number = work.arguments.get("device", work.thread[0])
    return number if isinstance(number, int) else 0
