"""The memory of a device over the steps: by each allocation of a trace, and by what was read between the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...records.device_profile import DeviceMemory
from .step_times import TraceReading
from .trace_slices import MEMORY

Readings = Mapping[int, Mapping[str, int]]
"""What the process read of the device at the end of each step, as `torch_private.device_work.memory_of` gives it."""


def peaks_of_step(step: int, events: Sequence[Mapping[str, Any]], host: TraceReading) -> list[DeviceMemory]:
    """The peaks of a traced step by the instants at which memory was allocated or freed, but for numdrift's own."""
    peaks: dict[int, DeviceMemory] = {}
    for event in sorted((one for one in events if one.get("name") == MEMORY), key=lambda one: float(one["ts"])):
        facts = event.get("args") or {}
        # The host's memory is of type 0.
        if not facts.get("Device Type") or not host.is_of_script(float(event["ts"])):
            continue
        device = max(0, int(facts.get("Device Id", 0)))
        allocated, reserved = int(facts["Total Allocated"]), int(facts["Total Reserved"])
        # Before the first instant there was what it has not allocated, or has not freed, yet.
        before = peaks.get(device)
        highest = allocated - int(facts.get("Bytes", 0)) if before is None else before.allocated_peak or 0
        most = reserved if before is None else before.reserved_peak or 0
        peaks[device] = DeviceMemory(step, device, max(highest, allocated), max(most, reserved))
    return [peaks[device] for device in sorted(peaks)]


def memory_over_steps(peaks: Sequence[DeviceMemory], readings: Readings) -> list[DeviceMemory]:
    """The memory of every step that was traced or read, in the order of steps and devices."""
    found = {(one.step, one.device): one for one in peaks}
    allocated = reserved = None
    for step in sorted(readings):
        read = readings[step]
        device = read.get("device", 0)
        # The peak since the script began is that of this step where it has grown in it, and says nothing of it else.
        known = found.get((step, device)) or DeviceMemory(
            step,
            device,
            _grown(read.get("allocated_peak"), allocated),
            _grown(read.get("reserved_peak"), reserved),
        )
        allocated, reserved = read.get("allocated_peak"), read.get("reserved_peak")
        found[step, device] = replace(known, allocated_so_far=allocated, reserved_so_far=reserved)
    return [found[key] for key in sorted(found)]


def _grown(now: int | None, before: int | None) -> int | None:
    return now if now is not None and (before is None or now > before) else None
