"""`numdrift profile`: traces of a script's steps in several modes, and where the time goes in each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..launch.batch_plan import BatchPlan
from ..launch.execute_batch import BatchResult, execute
from ..launch.reproducer import asked_for
from ..records.mode_spec import parse_modes
from ..records.profile_record import RunProfile
from ..records.profile_request import DEFAULT_STEPS, MEBIBYTE, PROFILE, TraceRequest
from ..records.step_selection import KeepParams, StepSelection
from ..runs.recorded_run import RecordedRun, is_there, load_run, runs_in
from ..runs.run_layout import MANIFEST, choose_investigation
from ..tools.profile.profile_made import profile_of
from ..tools.profile.tensorboard import write_log_directory
from .command_options import force_option, json_option, module_option, out_option, script_argument
from .output import console, write_json
from .profile_tables import draw_phases, profiles_json, show_profiles
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
@script_argument
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--modes", "listed", metavar="LIST", help="Modes by base, as in cpu,compile,lazy.")
@click.option("--mode", "single", multiple=True, metavar="SPEC", help="One mode in full; may be repeated.")
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
@click.option("--name", help="Name of the investigation (default: the script's, numbered).")
@module_option
@click.option("--timeout", type=float, metavar="SECONDS", help="End a run that takes longer.")
@click.option("--quiet", "-q", is_flag=True, help="Print failures and nothing else.")
@out_option
@force_option
@json_option
def command(script: str | None, arguments: tuple[str, ...], **options: Any) -> int:
    recorded = _recorded(script, options) if script is not None and options["module"] is None else None
    if recorded is not None:
        return _report(recorded, [profile_of(run) for run in recorded], options)
    plan = _plan(script, arguments, options)
    with reporter_for([spec.name for spec in plan.modes], quiet=options["quiet"]) as reporter:
        result = execute(plan, reporter)
    return max(_after(result, options), result.exit_code)


def _recorded(script: str, options: dict[str, Any]) -> list[RecordedRun] | None:
    """The profiled runs that are meant in place of a script; None for a script."""
    path = Path(script)
    if is_there(path / MANIFEST):
        runs = [load_run(path)]
    elif is_there(path) and path.is_dir() and (found := runs_in(path)):
        runs = [run for run in found if is_there(run.path / PROFILE)] or found
    else:
        return None
    asked = [name for name in ("listed", "steps", "duration") if options[name] is not None]
    if asked or options["single"]:
        raise UsageError(
            f"{script} was recorded already, and nothing is run again: leave out what to run, or give the script"
        )
    return runs


def _plan(script: str | None, arguments: tuple[str, ...], options: dict[str, Any]) -> BatchPlan:
    if options["listed"] is None and not options["single"]:
        no_run = (
            f"{script} is no run that was profiled, and " if script and not is_there(Path(script)) else ""
        )
        raise UsageError(f"{no_run}no mode is given; for example --modes cpu,compile,lazy")
    reproducer, arguments = asked_for(script, options["module"], arguments)
    return BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=parse_modes(options["listed"], options["single"]),
        investigation=choose_investigation(options["out"], reproducer.named_after, options["name"], ""),
        arguments=arguments,
        record="losses",
        keep_params=KeepParams.parse("last"),
        timeout=options["timeout"],
        force=options["force"],
        instruments={"profile": _request(options).to_json()},
    )


def _request(options: dict[str, Any]) -> TraceRequest:
    steps = DEFAULT_STEPS if options["steps"] is None else StepSelection.parse(options["steps"])
    if not steps.ranges:
        raise UsageError("--steps names no step; steps count from 0, as in 2-5")
    if options["duration"] is not None and options["steps"] is None:
        steps = StepSelection(((DEFAULT_STEPS.ranges[0][0], None),))
    return TraceRequest(options["kind"], steps, options["duration"], int(options["limit"] * MEBIBYTE))


def _after(result: BatchResult, options: dict[str, Any]) -> int:
    runs = [RecordedRun(run.folder.path, run.manifest) for run in result.runs]
    errors = console(stderr=True)
    for run in result.runs:
        show_failure(run, errors)
        for doubt in () if options["quiet"] else run.manifest.adopted.get("doubts", ()):
            errors.print(f"numdrift: {run.manifest.mode}: {doubt['text']}", soft_wrap=True)
    begun = [run for run in runs if not run.manifest.failed or is_there(run.path / PROFILE)]
    profiles = [profile_of(run, keep_working=options["keep_working"]) for run in begun]
    return _report(begun, profiles, options) if begun else 0


def _report(runs: Sequence[RecordedRun], profiles: Sequence[RunProfile], options: dict[str, Any]) -> int:
    """Show what there is; 2 where a mode has no trace."""
    folder = runs[0].path.parent
    pictures = draw_phases(folder, profiles) if any(one.steps for one in profiles) else []
    logs = write_log_directory(options["tensorboard"], runs) if options["tensorboard"] else []
    if options["json_path"]:
        write_json(options["json_path"], profiles_json(runs, profiles))
    if options["json_path"] != "-" and not options["quiet"]:
        show_profiles(runs, profiles, console(), options["top"])
        for path in pictures:
            console().print(f"Wrote {path}", soft_wrap=True)
        if logs:
            console().print(
                f"Wrote {options['tensorboard']}: `tensorboard --logdir {options['tensorboard']}` shows it",
                soft_wrap=True,
            )
    errors = console(stderr=True)
    for one in profiles:
        if one.problem:
            errors.print(f"numdrift: {one.mode}: nothing was traced: {one.problem}", soft_wrap=True)
    return 2 if any(one.problem for one in profiles) else 0
