"""Print the profile of each mode: its steps, its times on the host and on the device, and doubts about the times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from ..records.tools.backend_work import FROM_DEVICE, TO_DEVICE
from ..records.tools.profile_record import PROFILE, TRACE, RunProfile
from ..runs.recorded_run import RecordedRun
from ..tools.profile.device_rows import (
    DeviceCell,
    DeviceMeans,
    DeviceRow,
    by_copy,
    by_kernel,
    by_wait,
    device_means,
)
from ..tools.profile.side_by_side import Cell, TimeRow, by_block, by_line, by_module, by_op, by_phase
from .metrics import size
from .output import table

NOT_AVAILABLE = "not available"

OVER = {
    "limit": "its trace had reached the size limit (--limit)",
    "duration": "the time limit was reached (--duration)",
    "end": "the script ended",
    "closed": "the script ended",
    "killed": "the process was killed",
    "open": "a range of the script was still open, and torch cannot begin another trace within it",
    "profiler": "the script began its own torch profiler",
}
UNSTEADY = 2.0
"""If the longest step takes more than this multiple of the shortest step's time, the mean time is doubted."""


def show_profiles(runs: Sequence[RecordedRun], profiles: Sequence[RunProfile], out: Console, top: int) -> None:
    """Print the tables of the modes that were traced, and the notes on them."""
    traced = [profile for profile in profiles if profile.steps]
    for profile in traced:
        out.print(_in_a_line(profile), soft_wrap=True)
    if traced:
        phases = by_phase(traced)
        _show(out, traced, "phase", phases, len(phases), total=True)
        _show(out, traced, "block", by_block(traced), top)
        _show(out, traced, "module", by_module(traced), top)
        _show(out, traced, "line", by_line(traced), top)
        _show(out, traced, "op", by_op(traced), top)
        _show_devices(out, [profile for profile in traced if profile.has_device_times], top)
    for profile in traced:
        for text in [*_doubts(profile), *profile.notices]:
            out.print(f"{profile.mode}: {text}", soft_wrap=True)
    for run, profile in zip(runs, profiles, strict=True):
        if profile.steps:
            out.print(f"{profile.mode}: {run.path / PROFILE / TRACE} opens in https://ui.perfetto.dev", soft_wrap=True)


def _in_a_line(profile: RunProfile) -> str:
    """Return one line: the traced steps, the steps left out before them, and why tracing ended."""
    steps = profile.steps
    listed = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    if profile.partial:
        listed += f" (step {steps[-1]} only in part)"
    within = [f"{step}" for step, compiled in zip(steps, profile.compiled, strict=False) if compiled]
    listed += f", compiling in {', '.join(within)}" if within else ""
    text = f"{profile.mode}: traced {listed}, {profile.bytes / 2**20:.1f} MiB"
    before = [skipped for skipped in profile.untraced if skipped.step < steps[0]]
    if before:
        # if compilations were not counted (None), they are not mentioned
        compiled = [f"{skipped.step}" for skipped in before if skipped.compiled]
        why = f", compiling in {', '.join(compiled)}" if compiled else ", where nothing was compiled"
        why = "" if all(skipped.compiled is None for skipped in before) else why
        count = f"steps {before[0].step} to {before[-1].step}" if len(before) > 1 else f"step {before[0].step}"
        text += f"; left out {count}{why}"
    if profile.over in OVER:
        after = "" if profile.partial else f"ended after step {steps[-1]}, "
        text += f"; {after}{OVER[profile.over]}"
    return text


def _show(
    out: Console,
    profiles: Sequence[RunProfile],
    heading: str,
    rows: Sequence[TimeRow],
    top: int,
    *,
    total: bool = False,
) -> None:
    """Print a table with columns for each mode: milliseconds per step, their share of the step, and calls if counted.

    A mode on a device has separate columns for the host's and the device's times.
    """
    if not rows:
        return
    counted = any(cell is not None and cell.calls is not None for row in rows for cell in row.cells)
    shown = table(heading, *(column for profile in profiles for column in _columns(profile, counted, total)))
    for row in rows[:top]:
        cells = zip(profiles, row.cells, strict=True)
        shown.add_row(row.name, *(text for profile, cell in cells for text in _texts(profile, cell, counted, total)))
    if total:
        shown.add_row("step", *(text for profile in profiles for text in _whole(profile)))
    _print(out, shown, len(rows) - top)


def _columns(profile: RunProfile, counted: bool, total: bool) -> list[str]:
    mode, device = profile.mode, profile.device
    columns = [f">{mode} host ms" if device is not None else f">{mode} ms", ">%"]
    if profile.has_device_times:
        columns += [f">{mode} device ms", ">%"]
    elif device is not None and total:
        columns.append(f">{mode} device ms")
    return [*columns, *([">calls"] if counted else [])]


def _texts(profile: RunProfile, cell: Cell | None, counted: bool, total: bool) -> list[str]:
    if cell is None:
        return [""] * len(_columns(profile, counted, total))
    texts = [f"{cell.milliseconds:.3f}", f"{100 * cell.share:.1f}"]
    if cell.device_milliseconds is not None and cell.device_share is not None:
        texts += [f"{cell.device_milliseconds:.3f}", f"{100 * cell.device_share:.1f}"]
    elif profile.device is not None and total:
        texts.append("")
    return [*texts, *(["" if cell.calls is None else f"{cell.calls:.4g}"] if counted else [])]


def _whole(profile: RunProfile) -> list[str]:
    """Return the cells of the last row, which shows the step as a whole."""
    steps = len(profile.steps)
    texts = [f"{profile.milliseconds / steps:.3f}", "100"]
    if profile.has_device_times:
        texts += [f"{profile.device_milliseconds / steps:.3f}", "100"]
    elif profile.device is not None:
        texts.append(NOT_AVAILABLE)
    return texts


def _print(out: Console, shown: Table, more: int = 0) -> None:
    out.print()
    out.print(shown)
    if more > 0:
        out.print(f"and {more} more (--top, --json)")


def _show_devices(out: Console, profiles: Sequence[RunProfile], top: int) -> None:
    """Print the tables of the modes with device times: kernels, copies, waits, and how busy the device was."""
    if not profiles:
        return
    kernels: list[tuple[str, Callable[[DeviceCell], str]]] = [
        ("device ms", lambda cell: f"{cell.milliseconds:.3f}"),
        ("%", lambda cell: f"{100 * cell.share:.1f}"),
        ("calls", lambda cell: f"{cell.calls:.4g}"),
    ]
    waits = [("host ms", kernels[0][1]), *kernels[1:]]
    copies = [kernels[0], ("bytes", lambda cell: size(round(cell.bytes))), kernels[2]]
    _show_rows(out, profiles, "kernel", by_kernel(profiles), kernels, top)
    _show_rows(out, profiles, "copy", by_copy(profiles), copies, top)
    _show_rows(out, profiles, "the host waits in", by_wait(profiles), waits, top)
    means = [device for profile in profiles if (device := device_means(profile)) is not None]
    shown = table("device", *(f">{profile.mode}" for profile in profiles))
    for name, cells in _facts(means):
        if any(cells):
            shown.add_row(name, *(cell or "-" for cell in cells))
    _print(out, shown)


def _show_rows(
    out: Console,
    profiles: Sequence[RunProfile],
    heading: str,
    rows: Sequence[DeviceRow],
    columns: Sequence[tuple[str, Callable[[DeviceCell], str]]],
    top: int,
) -> None:
    if not rows:
        return
    names = [name for name, _ in columns]
    shown = table(heading, *(f">{name}" for profile in profiles for name in (f"{profile.mode} {names[0]}", *names[1:])))
    for row in rows[:top]:
        texts = ["" if cell is None else text(cell) for cell in row.cells for _, text in columns]
        shown.add_row(row.name, *texts)
    _print(out, shown, len(rows) - top)


def _facts(means: Sequence[DeviceMeans]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of the device table: a name and, for each mode, a text (empty if the mode has no value)."""
    for number in sorted({number for device in means for number in device.busy}):
        suffix = f", device {number}" if number or any(len(device.busy) > 1 for device in means) else ""
        yield f"busy ms{suffix}", [_milliseconds(device.busy.get(number)) for device in means]
        yield f"idle ms{suffix}", [_milliseconds(device.idle.get(number)) for device in means]
    yield "kernels", [_count(device.kernels) for device in means]
    yield "launches", [_count(device.launches) for device in means]
    for way in (TO_DEVICE, FROM_DEVICE):
        yield f"copies {way}", [_count(device.copies[way].calls) for device in means]
        yield "  bytes", [size(round(device.copies[way].bytes)) if device.copies[way].calls else "" for device in means]
    yield "waits of the host", [_count(device.waits.calls) for device in means]
    yield "  ms", [_milliseconds(device.waits.milliseconds) if device.waits.calls else "" for device in means]
    yield "memory peak", ["" if device.allocated_peak is None else size(device.allocated_peak) for device in means]
    yield "  reserved", ["" if device.reserved_peak is None else size(device.reserved_peak) for device in means]


def _count(value: float | None) -> str:
    return f"{value:.4g}" if value else ""


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _doubts(profile: RunProfile) -> Iterator[str]:
    """Yield doubts about the times: missing device times, causes that split a step's lazy graph, uneven step times."""
    if profile.device is not None and profile.device.problem:
        yield f"device times are not available, so all times are the host's: {profile.device.problem}"
    steps = len(profile.steps)
    for execution in profile.executions:
        if execution.cause != "mark_step":
            at_line = f" in {execution.line}" if execution.line else ""
            yield (
                f"{execution.cause}{at_line} executed a graph {execution.calls / steps:.3g} times a step "
                f"({execution.milliseconds / steps:.3g} ms), outside of mark_step"
            )
    least, most = min(profile.step_milliseconds), max(profile.step_milliseconds)
    if most > UNSTEADY * least and steps > 1:
        yield (
            f"its steps took from {least:.3g} to {most:.3g} ms: the machine was busy, or the steps differ; the mean of "
            "more steps (--steps) is more reliable"
        )
