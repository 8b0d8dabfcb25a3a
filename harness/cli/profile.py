"""`numdrift profile`: traces a script's steps in several modes, and shows the times of each mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from numdrift.plots.appearance import save
from numdrift.plots.phase_times import ModeTimes, phase_times

from ..api.profiling import ProfileRequest, planned_profile, profiled_before, profiles_made
from ..launch.execute_batch import execute
from ..records.tools.profile_record import DEFAULT_STEPS, PROFILE, TRACE, RunProfile
from ..runs.recorded_run import RecordedRun, is_there
from ..tools.profile.device_rows import DeviceRow, by_copy, by_kernel, by_wait, device_means
from ..tools.profile.profile_made import profile_of
from ..tools.profile.side_by_side import TimeRow, by_block, by_line, by_module, by_op, by_phase
from ..tools.profile.trace_file import write_log_directory
from . import command_options as options
from .output import console, write_json
from .profile_tables import show_profiles
from .progress import reporter_for
from .shown_runs import show_failure

EXAMPLES = f"""\b
Examples:
  numdrift profile train.py --modes cpu,compile,lazy -- --epochs 10
  numdrift profile train.py --modes cpu,compile --type operator --steps 2-5
  numdrift profile train.py --modes lazy --steps 10- --duration 15
  numdrift profile train.py --modes cuda --mode compile,device=cuda --type operator
  numdrift profile train.py --modes cpu,lazy --tensorboard logs
  numdrift profile runs/train

\b
By default, steps {DEFAULT_STEPS} are traced, because compilers have finished by then.
  trace     phases, numdrift.phase blocks, modules, ops, graph executions, generated kernels
  operator  also the shapes and the script line of each op, and the ops in each generated kernel. Python calls are
            traced as well, so everything that Python does takes longer.
On a device, `host ms` is the time that the host spends in a part of the step. `device ms` is the time of the work
that this part launches on the device, whenever that work runs. Kernels, copies, waits of the host and the load of
the device have separate tables. The table of lines needs --type operator.
Traces are runs/<name>/<mode>/profile/trace.json: open them in https://ui.perfetto.dev or chrome://tracing.
"""


@click.command(
    epilog=EXAMPLES,
    help="Run SCRIPT in each mode, trace some of its steps, and show where the time goes. SCRIPT may also be a "
    "profiled run or investigation; its tables are then shown again.",
)
@options.script_argument
@options.arguments_argument
@options.modes_option
@options.mode_option
@options.options_of(ProfileRequest, "kind", "steps", "duration", "limit")
@click.option(
    "--tensorboard", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Also write the traces to a log directory for TensorBoard's profile plug-in.",
)  # fmt: skip
@click.option("--keep-working", is_flag=True, help="Keep the files from which the traces are assembled.")
@click.option(
    "--top", type=click.IntRange(min=1), default=12, show_default=True, help="The maximum number of rows of a table."
)
@options.options_of(ProfileRequest, "name", "module", "max_steps", "max_seconds", "timeout")
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
    **settings: Any,
) -> int:
    shown: dict[str, Any] = {"tensorboard": tensorboard, "top": top, "quiet": quiet, "json_path": json_path}
    if script is not None and settings["module"] is None:  # the argument may name a run that has been profiled
        of_runs = (listed, *(settings[option] for option in ("steps", "duration", "max_steps", "max_seconds")))
        runs_asked_for = bool(single) or any(value is not None for value in of_runs)
        recorded = profiled_before(script, asks_for_runs=runs_asked_for)
        if recorded is not None:
            return _report(recorded, [profile_of(run) for run in recorded], **shown)
    # otherwise a missing run would be reported as a script without modes
    lacking = script is not None and not is_there(Path(script))
    why = f"{script} is not a profiled run, and " if lacking else ""
    modes = options.chosen_modes(listed, single, why=why)
    plan = planned_profile(ProfileRequest.of(script, modes, arguments, settings))
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    errors = console(stderr=True)
    for run in result.runs:
        show_failure(run, errors)
        for doubt in () if quiet else run.manifest.adopted.get("doubts", ()):
            errors.print(f"numdrift: {run.manifest.mode}: {doubt['text']}", soft_wrap=True)
    runs, profiles = profiles_made(result, keep_working=keep_working)
    return max(_report(runs, profiles, **shown) if runs else 0, result.exit_code)


PICTURE = "phase_times"


def _report(
    runs: Sequence[RecordedRun],
    profiles: Sequence[RunProfile],
    *,
    tensorboard: Path | None,
    top: int,
    quiet: bool,
    json_path: str | None,
) -> int:
    """Show, draw and write the profiles. Return the exit code: 2 if a mode has no trace, otherwise 0."""
    folder, traced = runs[0].path.parent, [profile for profile in profiles if profile.steps]
    pictures: list[Path] = []
    if traced:  # a stacked bar for each mode
        order = [row.name for row in by_phase(traced)]
        pictures = save(
            phase_times(_phases_of(traced), order, title=f"{folder.name} · time of a step by phase"), folder / PICTURE
        )
    logs = write_log_directory(tensorboard, runs) if tensorboard else []
    if json_path:
        write_json(json_path, _json(runs, profiles))
    if json_path != "-" and not quiet:
        out = console()
        show_profiles(runs, profiles, out, top)
        for path in pictures:
            out.print(f"Wrote {path}", soft_wrap=True)
        if logs:
            out.print(f"Wrote {tensorboard}: `tensorboard --logdir {tensorboard}` shows it", soft_wrap=True)
    errors = console(stderr=True)
    for profile in profiles:
        if profile.problem:
            errors.print(f"numdrift: {profile.mode}: nothing was traced: {profile.problem}", soft_wrap=True)
    return 2 if any(profile.problem for profile in profiles) else 0


def _phases_of(profiles: Sequence[RunProfile]) -> list[ModeTimes]:
    """Return the time of each phase of each mode's step, on the host and, if known, on the device."""
    rows = by_phase(profiles)
    times = []
    for index, profile in enumerate(profiles):
        cells = {row.name: cell for row in rows if (cell := row.cells[index]) is not None}
        device = {name: cell.device_milliseconds or 0.0 for name, cell in cells.items()}
        host = {name: cell.milliseconds for name, cell in cells.items()}
        times.append(ModeTimes(profile.mode, host, device if profile.has_device_times else None))
    return times


def _json(runs: Sequence[RecordedRun], profiles: Sequence[RunProfile]) -> dict[str, object]:
    traced = [profile for profile in profiles if profile.steps]
    tables: dict[str, Sequence[TimeRow | DeviceRow]] = {
        "phases": by_phase(traced),
        "blocks": by_block(traced),
        "modules": by_module(traced),
        "lines": by_line(traced),
        "ops": by_op(traced),
        "kernels": by_kernel(traced, whole=True),
        "copies": by_copy(traced),
        "waits": by_wait(traced),
    }
    means = [device_means(profile) for profile in traced]
    return {
        "schema": 1,
        "modes": [profile.mode for profile in traced],
        "tables": {name: [asdict(row) for row in rows] for name, rows in tables.items()},
        "devices": [None if device is None else asdict(device) for device in means],
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
