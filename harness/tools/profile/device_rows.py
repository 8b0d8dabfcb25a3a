"""The modes' devices beside each other: how busy, kernel by kernel, copies, and where the host waits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...records.backend_work import FROM_DEVICE, TO_DEVICE
from ...records.device_profile import DeviceProfile, DeviceWorkRow, WaitRow
from ...records.profile_record import RunProfile
from .kernel_names import short_kernel


@dataclass(frozen=True, slots=True)
class DeviceCell:
    """Means of a step: milliseconds (the device's; of a wait the host's), their share, calls, and the bytes of copies.
    The share is of all that the device did, that of a wait is of the step."""

    milliseconds: float
    share: float
    calls: float
    bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """One row of a table: a cell for each mode, None where the mode has nothing there."""

    name: str
    cells: tuple[DeviceCell | None, ...]

    @property
    def weight(self) -> float:
        return max(cell.share for cell in self.cells if cell is not None)


@dataclass(frozen=True, slots=True)
class DeviceMeans:
    """What a mode's devices did in a step, in means over the traced steps; times are in milliseconds.

    `busy` and `idle` are by the number of the device. `launches` is None where the trace does not have them, and so are
    the memory's peaks, which are the highest of any step.
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
    """The means of a mode that has times of its device, None for any other."""
    device = profile.device
    if device is None or device.problem:
        return None
    steps = len(profile.steps) or 1
    parts = device.steps
    numbers = sorted({part.device for part in parts})
    counted = [part.launches for part in parts]
    return DeviceMeans(
        device.milliseconds / steps,
        {number: sum(one.busy_milliseconds for one in parts if one.device == number) / steps for number in numbers},
        {number: sum(one.idle_milliseconds for one in parts if one.device == number) / steps for number in numbers},
        sum(part.kernels for part in parts) / steps,
        None if None in counted else sum(one for one in counted if one is not None) / steps,
        {way: _cell(profile, [row for row in device.work if row.direction == way]) for way in (TO_DEVICE, FROM_DEVICE)},
        _cell(profile, device.waits),
        max((one.allocated_peak for one in device.memory if one.allocated_peak is not None), default=None),
        max((one.reserved_peak for one in device.memory if one.reserved_peak is not None), default=None),
    )


def by_kernel(profiles: Sequence[RunProfile], *, whole: bool = False) -> list[DeviceRow]:
    """By kernel, copy and fill: by the `whole` names, or by short ones of kernels."""

    def name(row: DeviceWorkRow) -> str:
        return short_kernel(row.name) if row.sort == "kernel" and not whole else row.name

    return _rows(profiles, lambda device: device.work, name)


def by_copy(profiles: Sequence[RunProfile]) -> list[DeviceRow]:
    """Copies between host and device, by what asks for them."""

    def name(row: DeviceWorkRow) -> str:
        return f"{row.direction}: {row.op or row.name}{_where(row)}"

    return _rows(profiles, lambda device: [row for row in device.work if row.direction], name)


def by_wait(profiles: Sequence[RunProfile]) -> list[DeviceRow]:
    """Waits of the host for the device, by what asks for them."""

    def name(row: WaitRow) -> str:
        return f"{row.op}{_where(row)}: {row.call}" if row.op else f"{row.call}{_where(row)}"

    return _rows(profiles, lambda device: device.waits, name)


def _where(row: DeviceWorkRow | WaitRow) -> str:
    """The line that asks, else the module, else the phase."""
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
