"""The modes' times beside each other: by phase, block, module, op and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...records.profile_record import KernelRow, OpRow, RunProfile
from .step_times import COMPILE, EXECUTION, OTHER

PHASE_ORDER = (
    "setup", "data", "forward", "backward", "optimizer", "mark_step", EXECUTION, COMPILE, OTHER,
)  # fmt: skip
NO_MODULE = "(outside of modules)"
IN_GRAPHS = f"({EXECUTION})"
IN_COMPILER = "(compile)"
NO_LINE = "(not known)"


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean over the traced steps: own milliseconds, share of the step, calls (None where they are not counted)."""

    milliseconds: float
    share: float
    calls: float | None = None


@dataclass(frozen=True, slots=True)
class TimeRow:
    """One row of a table: a cell for each mode, None where the mode has nothing there."""

    name: str
    cells: tuple[Cell | None, ...]

    @property
    def weight(self) -> float:
        """The largest share that it has in a mode."""
        return max(cell.share for cell in self.cells if cell is not None)


def by_phase(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    """In the order in which they come in a step."""
    rows = _rows(profiles, lambda one: {row.phase: (row.milliseconds, None) for row in one.phases})
    order = {name: place for place, name in enumerate(PHASE_ORDER)}
    return sorted(rows, key=lambda row: order.get(row.name, len(order)))


def by_block(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    """The blocks that the script names, each with all that is within it."""
    return _rows(profiles, lambda one: {row.block: (row.milliseconds, row.calls) for row in one.blocks})


def by_module(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    return _largest_first(_rows(profiles, lambda one: _summed(one, module_of)))


def by_op(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    return _largest_first(_rows(profiles, lambda one: _summed(one, _op)))


def by_line(profiles: Sequence[RunProfile]) -> list[TimeRow]:
    """By line of the script, where the type of the traces has them."""
    rows = _rows(profiles, lambda one: _summed(one, _line))
    return [] if all(row.name in (NO_LINE, IN_GRAPHS, IN_COMPILER) for row in rows) else _largest_first(rows)


def module_of(row: OpRow, kernels: Mapping[str, KernelRow]) -> str:
    """What a table of modules calls the place of an op: a fused kernel belongs to all modules that it was made of."""
    kernel = kernels.get(row.op)
    if kernel is not None and kernel.modules:
        return ", ".join(one or "(root)" for one in kernel.modules)
    return {"execution": IN_GRAPHS, "compile": IN_COMPILER}.get(row.kind) or row.module or NO_MODULE


def _op(row: OpRow, _: Mapping[str, KernelRow]) -> str:
    return f"{row.op} (dispatch)" if row.kind == "dispatch" else row.op


def _line(row: OpRow, kernels: Mapping[str, KernelRow]) -> str:
    kernel = kernels.get(row.op)
    # Code that a compiler has generated has no line of the script; the ops that it was made of have.
    if kernel is not None and kernel.lines:
        return ", ".join(kernel.lines)
    return {"execution": IN_GRAPHS, "compile": IN_COMPILER}.get(row.kind) or row.line or NO_LINE


Sums = Mapping[str, tuple[float, "int | None"]]


def _summed(profile: RunProfile, name_of: Callable[[OpRow, Mapping[str, KernelRow]], str]) -> Sums:
    """Own milliseconds and calls of a run's ops by that name."""
    kernels = {one.name: one for one in profile.kernels}
    found: dict[str, tuple[float, int]] = {}
    for row in profile.ops:
        name = name_of(row, kernels)
        time, calls = found.get(name, (0.0, 0))
        found[name] = (time + row.milliseconds, calls + row.calls)
    return found


def _rows(profiles: Sequence[RunProfile], sums_of: Callable[[RunProfile], Sums]) -> list[TimeRow]:
    columns = [sums_of(one) for one in profiles]
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        cells: list[Cell | None] = []
        for profile, column in zip(profiles, columns, strict=True):
            if name not in column:
                cells.append(None)
                continue
            time, calls = column[name]
            # Modes may have traced different numbers of steps: a mean a step can be held against another's.
            steps = len(profile.steps) or 1
            share = time / profile.milliseconds if profile.milliseconds else 0.0
            cells.append(Cell(time / steps, share, None if calls is None else calls / steps))
        rows.append(TimeRow(name, tuple(cells)))
    return rows


def _largest_first(rows: Iterable[TimeRow]) -> list[TimeRow]:
    return sorted(rows, key=lambda row: (-row.weight, row.name))
