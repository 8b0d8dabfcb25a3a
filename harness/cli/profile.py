"""`numdrift profile`: traces of a script's steps in several modes, and where the time goes in each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from numdrift.plots.appearance import save
from numdrift.plots.phase_times import ModeTimes, phase_times

from ..api.profiling import planned_profile, profiled_before, profiles_made
from ..launch.execute_batch import execute
from ..records.profile_record import DEFAULT_STEPS, PROFILE, TRACE, RunProfile
from ..runs.recorded_run import RecordedRun, is_there
from ..tools.profile.profile_made import profile_of
from ..tools.profile.side_by_side import TimeRow, by_block, by_line, by_module, by_op, by_phase
from ..tools.profile.trace_file import write_log_directory
from . import command_options as options
from .output import console, table, write_json
from .progress import reporter_for
from .run import show_failure

EXAMPLES = f"""\b
Examples:
  numdrift profile train.py --modes cpu,compile,lazy -- --epochs 10
  numdrift profile train.py --modes cpu,compile --type operator --steps 2-5
  numdrift profile train.py --modes lazy --steps 10- --duration 15
  numdrift profile train.py --modes cpu,lazy --tensorboard logs
  numdrift profile runs/train

\b
Steps {DEFAULT_STEPS} are traced by default: compilers are done with theirs by then.
  trace     phases, numdrift.phase blocks, modules, ops, graph executions, generated kernels
  operator  besides, of each op the line of the script and the shapes; of each generated kernel what it was made
            of. Traces Python's calls, too, so everything that Python does takes longer.
Traces are runs/<name>/<mode>/profile/trace.json: open them in https://ui.perfetto.dev or chrome://tracing.
"""


@click.command(
    epilog=EXAMPLES,
    help="Run SCRIPT in each mode, trace some of its steps, and show where the time goes in each mode; or show the "
    "tables of a RUN or investigation that was profiled.",
)
@options.script_argument
@options.arguments_argument
@options.modes_option
@options.mode_option
@click.option(
    "--type", "kind", type=click.Choice(("trace", "operator")), default="trace", show_default=True,
    help="How much the traces hold.",
)  # fmt: skip
@click.option("--steps", metavar="LIST", help=f"Steps to trace, as in 2-5 (default {DEFAULT_STEPS}).")
@click.option(
    "--duration", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Trace for so long and then to the end of the step, from the first of --steps on.",
)  # fmt: skip
@click.option(
    "--limit", type=click.FloatRange(min=0, min_open=True), default=256.0, show_default=True, metavar="MIB",
    help="Stop tracing a mode with the step in which its trace has grown to this size.",
)  # fmt: skip
@click.option(
    "--tensorboard", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write the traces into a log directory for TensorBoard's profile plug-in, too.",
)  # fmt: skip
@click.option("--keep-working", is_flag=True, help="Keep the files that the traces are put together from.")
@click.option("--top", type=click.IntRange(min=1), default=12, show_default=True, help="Rows of a table.")
@options.name_option
@options.module_option
@options.limit_options
@options.timeout_option
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    listed: str | None,
    single: tuple[str, ...],
    keep_working: bool,
    tensorboard: Path | None,
    top: int,
    quiet: bool,
    json_path: str | None,
    **asked: Any,
) -> int:
    shown: dict[str, Any] = {"tensorboard": tensorboard, "top": top, "quiet": quiet, "json_path": json_path}
    if script is not None and asked["module"] is None:  # what may be a run that was profiled before
        of_runs = (listed, *(asked[one] for one in ("steps", "duration", "max_steps", "max_seconds")))
        runs_asked_for = bool(single) or any(one is not None for one in of_runs)
        recorded = profiled_before(script, asks_for_runs=runs_asked_for)
        if recorded is not None:
            return _report(recorded, [profile_of(run) for run in recorded], **shown)
    # a run that was meant and is not there would else be told that it names no mode
    lacking = script is not None and not is_there(Path(script))
    why = f"{script} is no run that was profiled, and " if lacking else ""
    plan = planned_profile(script, options.chosen_modes(listed, single, why=why), arguments, **asked)
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    errors = console(stderr=True)
    for run in result.runs:
        show_failure(run, errors)
        for doubt in () if quiet else run.manifest.adopted.get("doubts", ()):
            errors.print(f"numdrift: {run.manifest.mode}: {doubt['text']}", soft_wrap=True)
    runs, profiles = profiles_made(result, keep_working=keep_working)
    return max(_report(runs, profiles, **shown) if runs else 0, result.exit_code)


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


def _report(
    runs: Sequence[RecordedRun],
    profiles: Sequence[RunProfile],
    *,
    tensorboard: Path | None,
    top: int,
    quiet: bool,
    json_path: str | None,
) -> int:
    """Show what there is, draw it and write it; 2 where a mode has no trace."""
    folder, traced = runs[0].path.parent, [one for one in profiles if one.steps]
    pictures: list[Path] = []
    if traced:  # a stacked bar for each mode
        order = [row.name for row in by_phase(traced)]
        times = [
            ModeTimes(one.mode, {row.phase: row.milliseconds / len(one.steps) for row in one.phases}) for one in traced
        ]
        pictures = save(phase_times(times, order, title=f"{folder.name} · time of a step by phase"), folder / PICTURE)
    logs = write_log_directory(tensorboard, runs) if tensorboard else []
    if json_path:
        write_json(json_path, _json(runs, profiles))
    if json_path != "-" and not quiet:
        out = console()
        _show_profiles(runs, profiles, out, top)
        for path in pictures:
            out.print(f"Wrote {path}", soft_wrap=True)
        if logs:
            out.print(f"Wrote {tensorboard}: `tensorboard --logdir {tensorboard}` shows it", soft_wrap=True)
    errors = console(stderr=True)
    for one in profiles:
        if one.problem:
            errors.print(f"numdrift: {one.mode}: nothing was traced: {one.problem}", soft_wrap=True)
    return 2 if any(one.problem for one in profiles) else 0


def _show_profiles(runs: Sequence[RecordedRun], profiles: Sequence[RunProfile], out: Console, top: int) -> None:
    """Print the tables of the modes that were traced, and what is to be known of them."""
    traced = [one for one in profiles if one.steps]
    for profile in traced:
        out.print(_in_a_line(profile), soft_wrap=True)
    if traced:
        phases = by_phase(traced)
        _show(out, traced, "phase", phases, len(phases), total=True)
        _show(out, traced, "block", by_block(traced), top)
        _show(out, traced, "module", by_module(traced), top)
        _show(out, traced, "line", by_line(traced), top)
        _show(out, traced, "op", by_op(traced), top)
    for profile in traced:
        for text in [*_doubts(profile), *profile.notices]:
            out.print(f"{profile.mode}: {text}", soft_wrap=True)
    for run, profile in zip(runs, profiles, strict=True):
        if profile.steps:
            out.print(f"{profile.mode}: {run.path / PROFILE / TRACE} opens in https://ui.perfetto.dev", soft_wrap=True)


def _json(runs: Sequence[RecordedRun], profiles: Sequence[RunProfile]) -> dict[str, object]:
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


def _in_a_line(profile: RunProfile) -> str:
    """Which steps were traced, which were not, and why no more."""
    steps = profile.steps
    listed = f"steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"step {steps[0]}"
    if profile.partial:
        listed += f" (step {steps[-1]} not to its end)"
    text = f"{profile.mode}: traced {listed}, {profile.bytes / 2**20:.1f} MiB"
    before = [one for one in profile.untraced if one.step < steps[0]]
    if before:
        # None where nobody counted compilations: then nothing is said of them
        compiled = [f"{one.step}" for one in before if one.compiled]
        why = f", compiling in {', '.join(compiled)}" if compiled else ", where nothing was compiled"
        why = "" if all(one.compiled is None for one in before) else why
        count = f"steps {before[0].step} to {before[-1].step}" if len(before) > 1 else f"step {before[0].step}"
        text += f"; left out {count}{why}"
    if profile.over in OVER:
        after = "" if profile.partial else f"ended after step {steps[-1]}, "
        text += f"; {after}{OVER[profile.over]}"
    return text


def _show(
    out: Console, profiles: Sequence[RunProfile], what: str, rows: Sequence[TimeRow], top: int, *, total: bool = False
) -> None:
    """Print a table with columns for each mode: milliseconds of a step, their share, and calls where counted."""
    if not rows:
        return
    counted = any(cell is not None and cell.calls is not None for row in rows for cell in row.cells)
    columns = [[f">{one.mode} ms", ">%", *([">calls"] if counted else [])] for one in profiles]
    shown = table(what, *(column for mode in columns for column in mode))
    for row in rows[:top]:
        texts: list[str] = []
        for cell in row.cells:
            texts += ["", ""] if cell is None else [f"{cell.milliseconds:.3f}", f"{100 * cell.share:.1f}"]
            if counted:
                texts.append("" if cell is None or cell.calls is None else f"{cell.calls:.4g}")
        shown.add_row(row.name, *texts)
    if total:
        cells = [f"{one.milliseconds / len(one.steps):.3f}" for one in profiles]
        shown.add_row("step", *(text for cell in cells for text in (cell, "100")))
    out.print()
    out.print(shown)
    if len(rows) > top:
        out.print(f"and {len(rows) - top} more (--top, --json)")


def _doubts(profile: RunProfile) -> Iterator[str]:
    """What cut a step's lazy graph to pieces, and a mean of steps that are not alike, which says little."""
    steps = len(profile.steps)
    for one in profile.executions:
        if one.cause != "mark_step":
            where = f" in {one.line}" if one.line else ""
            yield (
                f"{one.cause}{where} made a graph be executed {one.calls / steps:.3g} times a step "
                f"({one.milliseconds / steps:.3g} ms), outside of mark_step"
            )
    least, most = min(profile.step_milliseconds), max(profile.step_milliseconds)
    if most > UNSTEADY * least and steps > 1:
        yield (
            f"its steps took from {least:.3g} to {most:.3g} ms: a busy machine, or steps that differ; more steps "
            "(--steps) give a steadier mean"
        )
