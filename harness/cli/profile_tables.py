"""The tables of `numdrift profile`, its JSON and its picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from numdrift.plots.appearance import save
from numdrift.plots.phase_times import ModeTimes, phase_times

from ..records.profile_record import TRACE, RunProfile
from ..records.profile_request import PROFILE
from ..runs.recorded_run import RecordedRun
from ..tools.profile.side_by_side import Cell, Row, by_block, by_line, by_module, by_op, by_phase
from .output import table

OVER = {
    "limit": "its trace had grown to the limit (--limit)",
    "duration": "the time was over (--duration)",
    "end": "the script ended",
    "closed": "the script ended",
    "killed": "the process was killed",
    "open": "a range of the script was under way then, within which torch cannot begin another trace",
    "profiler": "the script began a torch profiler of its own",
}
PICTURE = "phase_times"
UNSTEADY = 2.0
"""The longest step by the shortest, from which on their mean is doubted."""


def show_profiles(
    runs: Sequence[RecordedRun], profiles: Sequence[RunProfile], out: Console, top: int
) -> None:
    """Print the tables of the modes that were traced, and what is to be known of them."""
    traced = [one for one in profiles if one.steps]
    for profile in traced:
        out.print(_in_a_line(profile), soft_wrap=True)
    if traced:
        _show(out, traced, "phase", by_phase(traced), len(by_phase(traced)), total=True)
        _show(out, traced, "block", by_block(traced), top)
        _show(out, traced, "module", by_module(traced), top)
        _show(out, traced, "line", by_line(traced), top)
        _show(out, traced, "op", by_op(traced), top)
    for profile in traced:
        for text in [*_executions(profile), *_unsteadiness(profile), *profile.notices]:
            out.print(f"{profile.mode}: {text}", soft_wrap=True)
    for run, profile in zip(runs, profiles, strict=True):
        if profile.steps:
            out.print(
                f"{profile.mode}: {run.path / PROFILE / TRACE} opens in https://ui.perfetto.dev",
                soft_wrap=True,
            )


def profiles_json(runs: Sequence[RecordedRun], profiles: Sequence[RunProfile]) -> dict[str, Any]:
    traced = [one for one in profiles if one.steps]
    tables = {"phases": by_phase, "blocks": by_block, "modules": by_module, "lines": by_line, "ops": by_op}
    return {
        "schema": 1,
        "modes": [one.mode for one in traced],
        "tables": {name: [asdict(row) for row in rows(traced)] for name, rows in tables.items()},
        "runs": [
            {
                "path": str(run.path),
                "status": run.manifest.status,
                "message": run.manifest.message,
                "trace": str(run.path / PROFILE / TRACE) if profile.steps else None,
                **asdict(profile),
            }
            for run, profile in zip(runs, profiles, strict=True)
        ],
    }


def draw_phases(folder: Path, profiles: Sequence[RunProfile]) -> list[Path]:
    """A stacked bar for each mode."""
    traced = [one for one in profiles if one.steps]
    order = [row.name for row in by_phase(traced)]
    times = [
        ModeTimes(one.mode, {row.phase: row.milliseconds / len(one.steps) for row in one.phases})
        for one in traced
    ]
    return save(phase_times(times, order, title=f"{folder.name} · time of a step by phase"), folder / PICTURE)


def _in_a_line(profile: RunProfile) -> str:
    """Which steps were traced, which were not, and why no more."""
    steps = profile.steps
    listed = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    if profile.partial:
        listed += f" (step {steps[-1]} not to its end)"
    text = f"{profile.mode}: traced {listed}, {profile.bytes / 2**20:.1f} MiB"
    before = [one for one in profile.untraced if one.step < steps[0]]
    if before:
        compiled = [f"{one.step}" for one in before if one.compiled]
        why = f", compiling in {', '.join(compiled)}" if compiled else ", where nothing was compiled"
        why = "" if all(one.compiled is None for one in before) else why
        count = (
            f"steps {before[0].step} to {before[-1].step}" if len(before) > 1 else f"step {before[0].step}"
        )
        text += f"; left out {count}{why}"
    if profile.over in OVER:
        text += (
            f"; ended after step {steps[-1]}, {OVER[profile.over]}"
            if not profile.partial
            else f"; {OVER[profile.over]}"
        )
    return text


def _show(
    out: Console,
    profiles: Sequence[RunProfile],
    what: str,
    rows: Sequence[Row],
    top: int,
    *,
    total: bool = False,
) -> None:
    if not rows:
        return
    counted = any(cell is not None and cell.calls is not None for row in rows for cell in row.cells)
    columns = [[f">{one.mode} ms", ">%", *([">calls"] if counted else [])] for one in profiles]
    shown = table(what, *(column for mode in columns for column in mode))
    for row in rows[:top]:
        shown.add_row(row.name, *(text for cell in row.cells for text in _texts(cell, counted=counted)))
    if total:
        cells = [f"{one.milliseconds / len(one.steps):.3f}" for one in profiles]
        shown.add_row("step", *(text for cell in cells for text in (cell, "100")))
    out.print()
    out.print(shown)
    if len(rows) > top:
        out.print(f"and {len(rows) - top} more (--top, --json)")


def _texts(cell: Cell | None, *, counted: bool) -> Iterator[str]:
    yield "" if cell is None else f"{cell.milliseconds:.3f}"
    yield "" if cell is None else f"{100 * cell.share:.1f}"
    if counted:
        yield "" if cell is None or cell.calls is None else f"{cell.calls:.4g}"


def _executions(profile: RunProfile) -> Iterator[str]:
    """What made lazy graphs be executed outside of a mark_step, which cuts the step's graph to pieces."""
    steps = len(profile.steps)
    for one in profile.executions:
        if one.cause != "mark_step":
            where = f" in {one.line}" if one.line else ""
            yield (
                f"{one.cause}{where} made a graph be executed {one.calls / steps:.3g} times a step "
                f"({one.milliseconds / steps:.3g} ms), outside of mark_step"
            )


def _unsteadiness(profile: RunProfile) -> Iterator[str]:
    """A mean of steps that are not alike says little."""
    least, most = min(profile.step_milliseconds), max(profile.step_milliseconds)
    if most > UNSTEADY * least and len(profile.steps) > 1:
        yield (
            f"its steps took from {least:.3g} to {most:.3g} ms: a busy machine, or steps that differ; more steps "
            "(--steps) give a steadier mean"
        )
