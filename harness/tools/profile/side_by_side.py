"""The host and device times of several modes side by side, by phase, block, module, op and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.tools.device_profile import DeviceWorkRow
from ...records.tools.profile_record import KernelRow, OpRow, RunProfile
from .step_times import COMPILE, EXECUTION, OTHER

PHASE_ORDER = (
    "setup", "data", "forward", "backward", "optimizer", "mark_step", EXECUTION, COMPILE, OTHER,
)  # fmt: skip
NO_MODULE = "(outside of modules)"
IN_GRAPHS = f"({EXECUTION})"
IN_COMPILER = "(compile)"
NO_LINE = "(unknown)"
NO_OP = "(outside of ops)"


@dataclass(frozen=True, slots=True)
class Cell:
    """Means over the traced steps.

    milliseconds: the host's own time
    share: the share of the step
    calls: the number of calls, None if not counted
    device_milliseconds: the device's time for the work that the row's code launched, None without device times
    device_share: the share of this time in all the device's work, None without device times
    """

    milliseconds: float
    share: float
    calls: float | None = None
    device_milliseconds: float | None = None
    device_share: float | None = None


@dataclass(frozen=True, slots=True)
class TimeRow:
    """One row of a table: a cell for each mode, None for a mode without an entry."""

    name: str
    cells: tuple[Cell | None, ...]

    @property
    def weight(self) -> float:
        """The largest share in any mode, of the host's time or of the device's."""
        return max(max(cell.share, cell.device_share or 0.0) for cell in self.cells if cell is not None)


def by_phase(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    """Return rows by phase, in the order of a step."""
    rows = _rows(
        profiles,
        lambda profile: {row.phase: (row.milliseconds, None) for row in profile.phases},
        lambda profile: _launched(profile, lambda row, _: row.phase),
    )
    order = {name: place for place, name in enumerate(PHASE_ORDER)}
    return sorted(rows, key=lambda row: order.get(row.name, len(order)))


def by_block(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    """Return rows by block of the script; a block's time includes everything within it."""
    return _rows(
        profiles,
        lambda profile: {row.block: (row.milliseconds, row.calls) for row in profile.blocks},
        lambda profile: {row.block: row.device_milliseconds or 0.0 for row in profile.blocks},
    )


def by_module(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    return _largest_first(
        _rows(
            profiles,
            lambda profile: _summed(profile, lambda row, kernels: module_of(row.op, row.kind, row.module, kernels)),
            lambda profile: _launched(
                profile, lambda row, kernels: module_of(_origin_name(row, kernels), _kind(row), row.module, kernels)
            ),
        )
    )


def by_op(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    return _largest_first(
        _rows(
            profiles,
            lambda profile: _summed(profile, _op),
            lambda profile: _launched(profile, lambda row, _: row.op or NO_OP),
        )
    )


def by_line(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    """Return rows by line of the script, if the traces have lines."""
    rows = _rows(
        profiles,
        lambda profile: _summed(profile, lambda row, kernels: line_of(row.op, row.kind, row.line, kernels)),
        lambda profile: _launched(
            profile, lambda row, kernels: line_of(_origin_name(row, kernels), _kind(row), row.line, kernels)
        ),
    )
    return [] if all(row.name in (NO_LINE, IN_GRAPHS, IN_COMPILER) for row in rows) else _largest_first(rows)


Kernels = Mapping[str, KernelRow]
"""The origins of generated kernels, by kernel name."""


def module_of(op: str, kind: str, module: str, kernels: Kernels) -> str:
    """Return the name of an op's row in a table of modules; a fused kernel belongs to all modules of its ops."""
    kernel = kernels.get(op)
    if kernel is not None and kernel.modules:
        return ", ".join(name or "(root)" for name in kernel.modules)
    return {"execution": IN_GRAPHS, "compile": IN_COMPILER}.get(kind) or module or NO_MODULE


def line_of(op: str, kind: str, line: str, kernels: Kernels) -> str:
    kernel = kernels.get(op)
    # Generated code has no line in the script, but the ops from which it was generated have lines.
    if kernel is not None and kernel.lines:
        return ", ".join(kernel.lines)
    return {"execution": IN_GRAPHS, "compile": IN_COMPILER}.get(kind) or line or NO_LINE


def _op(row: OpRow, _: Kernels) -> str:
    return f"{row.op} (dispatch)" if row.kind == "dispatch" else row.op


def _origin_name(row: DeviceWorkRow, kernels: Kernels) -> str:
    """Return the name under which the kernel's origin is recorded: its own, or that of the op that launched it."""
    return row.name if row.name in kernels else row.op


def _kind(row: DeviceWorkRow) -> str:
    """Return "compile" for work that a compiler launched to try out kernels, "" for any other work."""
    return "compile" if row.phase == COMPILE else ""


Sums = Mapping[str, tuple[float, "int | None"]]


def _summed(profile: RunProfile, name_of: Callable[[OpRow, Kernels], str]) -> Sums:
    """Sum the host's milliseconds and the calls of a run's ops by `name_of`.

    The time of an op excludes the ops that it calls.
    """
    kernels = {kernel.name: kernel for kernel in profile.kernels}
    sums: dict[str, tuple[float, int]] = {}
    for row in profile.ops:
        name = name_of(row, kernels)
        time, calls = sums.get(name, (0.0, 0))
        sums[name] = (time + row.milliseconds, calls + row.calls)
    return sums


def _launched(profile: RunProfile, name_of: Callable[[DeviceWorkRow, Kernels], str]) -> Mapping[str, float]:
    """Sum the milliseconds of the device's work by `name_of`."""
    kernels = {kernel.name: kernel for kernel in profile.kernels}
    milliseconds: dict[str, float] = {}
    for row in profile.device.work if profile.device is not None else ():
        name = name_of(row, kernels)
        milliseconds[name] = milliseconds.get(name, 0.0) + row.milliseconds
    return milliseconds


def _rows(
    profiles: Sequence[RunProfile],
    sums_of: Callable[[RunProfile], Sums],
    launched_by: Callable[[RunProfile], Mapping[str, float]],
) -> list[TimeRow]:
    columns = [(sums_of(run_profile), launched_by(run_profile)) for run_profile in profiles]
    rows = []
    for name in dict.fromkeys(name for column in columns for part in column for name in part):
        cells: list[Cell | None] = []
        for profile, (sums, launched) in zip(profiles, columns, strict=True):
            if name not in sums and name not in launched:
                cells.append(None)
                continue
            time, calls = sums.get(name, (0.0, None))
            # Modes may have traced different numbers of steps, so means per step are compared.
            steps = len(profile.steps) or 1
            cell = Cell(
                time / steps,
                time / profile.milliseconds if profile.milliseconds else 0.0,
                None if calls is None else calls / steps,
            )
            if profile.has_device_times:
                device = launched.get(name, 0.0)
                of_all = profile.device_milliseconds
                cell = replace(
                    cell, device_milliseconds=device / steps, device_share=device / of_all if of_all else 0.0
                )
            cells.append(cell)
        rows.append(TimeRow(name, tuple(cells)))
    return rows


def _largest_first(rows: Iterable[TimeRow]) -> list[TimeRow]:
    return sorted(rows, key=lambda row: (-row.weight, row.name))
