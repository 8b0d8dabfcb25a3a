"""The devices of several modes side by side: busy time, kernels, copies, and the host's waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...records.tools.backend_work import FROM_DEVICE, TO_DEVICE
from ...records.tools.device_profile import DeviceProfile, DeviceWorkRow, WaitRow
from ...records.tools.profile_record import RunProfile
from .kernel_names import short_kernel


@dataclass(frozen=True, slots=True)
class DeviceCell:
    """Means per step.

    milliseconds: the time of the device, or of the host for a wait
    share: the share of all the device's work, or of the step for a wait
    calls: the number of calls
    bytes: the bytes of copies
    """

    milliseconds: float
    share: float
    calls: float
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One row of a table: a cell for each mode, None for a mode without an entry."""

    name: str
    cells: tuple[DeviceCell | None, ...]

    @property
    def weight(self) -> float:
        return max(cell.share for cell in self.cells if cell is not None)


@dataclass(frozen=True, slots=True)
class DeviceMeans:
    """The work of a mode's devices in a step, as means over the traced steps, in milliseconds.

    busy, idle: the busy and the idle time, by the number of the device
    launches: the number of launches, None if a trace does not show them
    allocated_peak, reserved_peak: the highest peak of any step, None if no peak is known
    """

    milliseconds: float
    busy: Mapping[int, float]
    idle: Mapping[int, float]
    kernels: float
    launches: float | None
    copies: Mapping[str, DeviceCell]
    waits: DeviceCell
    allocated_peak: int | None
    reserved_peak: int | None


def device_means(profile: RunProfile) -> DeviceMeans | None:
    """Return the means of a mode, None if it has no device times."""
    device = profile.device
    if device is None or device.problem:
        return None
    steps = len(profile.steps) or 1
    parts = device.steps
    numbers = sorted({part.device for part in parts})
    counted = [part.launches for part in parts]
    return DeviceMeans(
        device.milliseconds / steps,
        {number: sum(part.busy_milliseconds for part in parts if part.device == number) / steps for number in numbers},
        {number: sum(part.idle_milliseconds for part in parts if part.device == number) / steps for number in numbers},
        sum(part.kernels for part in parts) / steps,
        None if None in counted else sum(launches for launches in counted if launches is not None) / steps,
        {way: _cell(profile, [row for row in device.work if row.direction == way]) for way in (TO_DEVICE, FROM_DEVICE)},
        _cell(profile, device.waits),
        max((memory.allocated_peak for memory in device.memory if memory.allocated_peak is not None), default=None),
        max((memory.reserved_peak for memory in device.memory if memory.reserved_peak is not None), default=None),
    )


def by_kernel(profiles: Sequence[RunProfile], *, whole: bool = False) -> list[DeviceRow]:
    """Return rows by kernel, copy and fill. The names of kernels are shortened unless `whole` is true."""

    def name(row: DeviceWorkRow) -> str:
        return short_kernel(row.name) if row.sort == "kernel" and not whole else row.name

    return _rows(profiles, lambda device: device.work, name)


def by_copy(profiles: Sequence[RunProfile]) -> list[DeviceRow]:
    """Return rows of copies between host and device, by direction, op and place."""

    def name(row: DeviceWorkRow) -> str:
        return f"{row.direction}: {row.op or row.name}{_where(row)}"

    return _rows(profiles, lambda device: [row for row in device.work if row.direction], name)


def by_wait(profiles: Sequence[RunProfile]) -> list[DeviceRow]:
    """Return rows of the host's waits for the device, by op, place and call."""

    def name(row: WaitRow) -> str:
        return f"{row.op}{_where(row)}: {row.call}" if row.op else f"{row.call}{_where(row)}"

    return _rows(profiles, lambda device: device.waits, name)


def _where(row: DeviceWorkRow | WaitRow) -> str:
    """Return the line of the script, else the module, else the phase."""
    return f" in {row.line or row.module or row.phase}"


def _rows(
    profiles: Sequence[RunProfile],
    parts_of: Callable[[DeviceProfile], Iterable[DeviceWorkRow | WaitRow]],
    name_of: Callable[..., str],
) -> list[DeviceRow]:
    columns: list[dict[str, list[DeviceWorkRow | WaitRow]]] = []
    for profile in profiles:
        column: dict[str, list[DeviceWorkRow | WaitRow]] = {}
        for part in parts_of(profile.device) if profile.device is not None else ():
            column.setdefault(name_of(part), []).append(part)
        columns.append(column)
    rows = [
        DeviceRow(
            name,
            tuple(
                _cell(profile, column[name]) if name in column else None
                for profile, column in zip(profiles, columns, strict=True)
            ),
        )
        for name in dict.fromkeys(name for column in columns for name in column)
    ]
    return sorted(rows, key=lambda row: (-row.weight, row.name))


def _cell(profile: RunProfile, parts: Sequence[DeviceWorkRow | WaitRow]) -> DeviceCell:
    steps = len(profile.steps) or 1
    time = math.fsum(part.milliseconds for part in parts)
    on_host = any(isinstance(part, WaitRow) for part in parts)
    whole = profile.milliseconds if on_host else profile.device_milliseconds
    return DeviceCell(
        time / steps,
        time / whole if whole else 0.0,
        sum(part.calls for part in parts) / steps,
        sum(part.bytes for part in parts if isinstance(part, DeviceWorkRow)) / steps,
    )
