"""The memory of a device over the steps, from a trace's allocations and from readings between steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...records.tools.device_profile import DeviceMemory
from .step_times import TraceReading
from .trace_slices import MEMORY

Readings = Mapping[int, Mapping[str, int]]
"""The device's memory at the end of each step, as `torch_private.device_work.memory_of` returns it."""


def peaks_of_step(step: int, events: Sequence[Mapping[str, Any]], host: TraceReading) -> list[DeviceMemory]:
    """Return the memory peaks of a traced step from its allocations and frees, without numdrift's own."""
    peaks: dict[int, DeviceMemory] = {}
    for event in sorted(
        (entry for entry in events if entry.get("name") == MEMORY), key=lambda entry: float(entry["ts"])
    ):
        facts = event.get("args") or {}
        # The host's memory is of type 0.
        if not facts.get("Device Type") or not host.is_of_script(float(event["ts"])):
            continue
        device = max(0, int(facts.get("Device Id", 0)))
        allocated, reserved = int(facts["Total Allocated"]), int(facts["Total Reserved"])
        # Start with the amount before the first event: subtract what the event allocates, or add what it frees.
        before = peaks.get(device)
        highest = allocated - int(facts.get("Bytes", 0)) if before is None else before.allocated_peak or 0
        most = reserved if before is None else before.reserved_peak or 0
        peaks[device] = DeviceMemory(step, device, max(highest, allocated), max(most, reserved))
    return [peaks[device] for device in sorted(peaks)]


def memory_over_steps(peaks: Sequence[DeviceMemory], readings: Readings) -> list[DeviceMemory]:
    """Return the memory of every step that was traced or read, in the order of steps and devices."""
    memory = {(peak.step, peak.device): peak for peak in peaks}
    allocated = reserved = None
    for step in sorted(readings):
        read = readings[step]
        device = read.get("device", 0)
        # The peak since the script began is this step's peak only if it grew in this step.
        step_memory = memory.get((step, device)) or DeviceMemory(
            step,
            device,
            _grown(read.get("allocated_peak"), allocated),
            _grown(read.get("reserved_peak"), reserved),
        )
        allocated, reserved = read.get("allocated_peak"), read.get("reserved_peak")
        memory[step, device] = replace(step_memory, allocated_so_far=allocated, reserved_so_far=reserved)
    return [memory[key] for key in sorted(memory)]


def _grown(now: int | None, before: int | None) -> int | None:
    return now if now is not None and (before is None or now > before) else None
