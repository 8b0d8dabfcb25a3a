"""The times of devices in the traced steps: their work, the host's waits, and each step's busy and idle time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...records.tools.device_profile import DeviceMemory, DeviceProfile, DeviceStep, DeviceWorkRow, WaitRow, WorkSort
from .allocations import Readings, memory_over_steps, peaks_of_step
from .device_launches import DeviceLaunches, DevicePiece, device_of
from .step_times import Spent, TraceReading
from .trace_slices import Slice

Interval = tuple[float, float]
"""Start and end, in microseconds."""


class WorkKey(NamedTuple):
    """The properties that distinguish pieces of work."""

    name: str
    sort: WorkSort
    op: str
    phase: str
    module: str
    line: str
    direction: str


class WaitKey(NamedTuple):
    """The properties that distinguish waits of the host."""

    call: str
    op: str
    phase: str
    module: str
    line: str


@dataclass(slots=True)
class DeviceTimes:
    """Device times of one or more steps, in microseconds.

    moved: the bytes of copies
    blocks: the time of the work that was launched within each block of the script
    """

    work: dict[WorkKey, Spent] = field(default_factory=dict)
    moved: Counter[WorkKey] = field(default_factory=Counter)
    waits: dict[WaitKey, Spent] = field(default_factory=dict)
    blocks: dict[str, float] = field(default_factory=dict)
    steps: list[DeviceStep] = field(default_factory=list)
    peaks: list[DeviceMemory] = field(default_factory=list)

    def add(self, step: int, events: Sequence[Mapping[str, Any]], host: TraceReading) -> None:
        """Add the trace of a step; `host` is its host side, already read."""
        if host.step is None:
            return
        launches = DeviceLaunches(events, host)
        for piece in launches.pieces:
            place, time = piece.place, piece.slice.time
            key = WorkKey(
                piece.slice.name, piece.sort, piece.op, place.phase, place.module, place.line, piece.direction
            )
            self.work.setdefault(key, Spent()).add(time)
            self.moved[key] += piece.bytes
            for block in _blocks_around(piece, host):
                self.blocks[block] = self.blocks.get(block, 0.0) + time
        for wait in launches.waits():
            place = wait.place
            waited = WaitKey(wait.call.name, wait.op, place.phase, place.module, place.line)
            self.waits.setdefault(waited, Spent()).add(wait.call.time)
        self.steps += _steps(step, launches, host.step, host.own)
        self.peaks += peaks_of_step(step, events, host)

    def profile(self, kind: str, problem: str, readings: Readings) -> DeviceProfile:
        """Return the times as rows in milliseconds, the longest first.

        `readings` has the device's memory at the end of each step.
        """
        work = [
            DeviceWorkRow(
                key.name, key.sort, key.op, key.phase, key.module, key.line, spent.calls, spent.time / 1000,
                key.direction, self.moved[key],
            )
            for key, spent in self.work.items()
        ]  # fmt: skip
        waits = [WaitRow(*key, spent.calls, spent.time / 1000) for key, spent in self.waits.items()]
        return DeviceProfile(
            kind,
            problem,
            sorted(work, key=lambda row: -row.milliseconds),
            sorted(waits, key=lambda row: -row.milliseconds),
            self.steps,
            memory_over_steps(self.peaks, readings),
        )


def _blocks_around(piece: DevicePiece, host: TraceReading) -> set[str]:
    """Return the blocks that the script was in when the piece was launched.

    The launch itself may be on another thread, as in a backward.
    """
    assert host.step is not None
    innermost = host.innermost(host.step.thread, piece.launched)
    around = [] if innermost is None else [innermost, *innermost.ancestors()]
    return {ancestor.name for ancestor in around if host.is_block(ancestor)}


def _steps(step: int, launches: DeviceLaunches, whole: Slice, own: Sequence[Interval]) -> list[DeviceStep]:
    """Return a record of the step for each device that did work of the step."""
    by_device: dict[int, list[DevicePiece]] = defaultdict(list)
    for piece in launches.pieces:
        by_device[piece.device].append(piece)
    device_steps = []
    for device, pieces in sorted(by_device.items()):
        busy = united((work.slice.start, work.slice.end) for work in pieces)
        last = max(whole.end, busy[-1][1])
        # A device that does numdrift's own work is not idle, but does no work of the script.
        everything = ((work.start, work.end) for work in launches.all if device_of(work) == device)
        occupied = united([*everything, *own])
        kernels = [work for work in pieces if work.sort == "kernel"]
        device_steps.append(
            DeviceStep(
                step,
                device,
                math.fsum(work.slice.time for work in pieces) / 1000,
                _length(busy) / 1000,
                (last - whole.start - _length(occupied, (whole.start, last))) / 1000,
                len(kernels),
                len({id(work.call) for work in kernels if work.call is not None}) if launches.calls else None,
            )
        )
    return device_steps


def united(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the intervals in order, merging those that overlap or touch."""
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _length(intervals: Iterable[Interval], within: Interval = (-math.inf, math.inf)) -> float:
    """Return the total length of disjoint intervals, counting only their parts inside the interval `within`."""
    cut = ((max(start, within[0]), min(end, within[1])) for start, end in intervals)
    return math.fsum(max(0.0, end - start) for start, end in cut)
