"""`numdrift snapshot take`: trains in several modes, and keeps chosen executions."""

from __future__ import annotations

from typing import Any

import click

from ...api.snapshot_taking import SnapshotRequest, first_differing_steps, planned_again, planned_snapshots
from ...errors import NumdriftError, UsageError
from ...launch.execute_batch import BatchResult, FinishedRun, execute
from ...records.run.execution_facts import in_mib
from ...records.tools.snapshot_index import FOLDER, SnapshotEntry, entries_of
from ...runs.run_layout import rank_folder
from .. import command_options as options
from ..output import console, table, write_json
from ..progress import reporter_for
from ..shown_runs import show_failure

SCHEMA = 1

INCOMPLETE = "the snapshot of "
"""The beginning of the notice on an incomplete snapshot."""

REASONS = ("no snapshot of ", "no snapshots are taken: ", "loading the callback ")
"""The beginnings of the notices that say why nothing was taken."""

EXAMPLES = """\b
Examples:
  numdrift snapshot take train.py --modes compile,lazy --steps 3 -- --epochs 2
  numdrift snapshot take train.py --modes compile --graph "*-forward" --executions 2 --what outputs
  numdrift snapshot take train.py --modes compile --on nonfinite --then stop
  numdrift snapshot take train.py --modes compile --on error
  numdrift snapshot take train.py --modes cpu,compile --on drift
  numdrift snapshot take train.py --modes cpu --callback choose.py:choose --limit-size 500

\b
An execution is a unit that a mode executes in one go: with torch.compile, each call of a compiled graph; in lazy
mode, the graph that a cut executes; in eager mode, the forward, the backward or the optimizer of a step. Steps and
executions are counted from 0. By default, the executions of step 0 are kept. --steps, --executions, --graph, --on
and --callback choose others.

\b
A callback chooses what is kept of each execution:
  def choose(name, device_index, execution_count, step):
      return "inputs outputs" if step == 5 else ""
It returns "inputs", "outputs", "inputs outputs", or "" for nothing.
A script can set its own callback with numdrift.on_snapshot(choose).

\b
Snapshots are runs/<name>/<mode>/snapshots/<graph>-step000003-execution000003.safetensors. They contain parameters
and batches: look at a file with `numdrift snapshot show` before you share it.
Exit codes: 0 done, 2 wrong usage (or there was nothing to take), 3 a run failed, or a snapshot is incomplete.
"""


@click.command(
    epilog=EXAMPLES,
    help="Run SCRIPT in each mode, and keep the inputs, outputs and graph of chosen executions, each in its own file.",
)
@options.script_argument
@options.arguments_argument
@options.modes_option
@options.mode_option
@options.options_of(
    SnapshotRequest, "steps", "executions", "graphs", "ranks", "on", "then", "callback", "what", "limit_size",
    "limit_count", "name", "nproc", "max_steps", "max_seconds", "module", "timeout",
)  # fmt: skip
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    listed: str | None,
    single: tuple[str, ...],
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    modes = options.chosen_modes(listed, single, "compile,lazy")
    request = SnapshotRequest.of(script, modes, arguments, settings)
    plan = planned_snapshots(request)
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    if request.until_drift and not result.exit_code:
        # these runs only show at which step each mode begins to differ; a mode that differs is trained again to take
        # snapshots of that step
        steps = first_differing_steps([(run.manifest.mode, run.journal) for run in result.runs])
        finished: list[FinishedRun] = []
        for spec in plan.modes[1:]:
            step = steps.get(spec.name)
            if not quiet:
                reference = plan.modes[0].name
                text = f"numdrift: {spec.name}: no step differs from {reference}'s, so no snapshot is taken"
                if step is not None:
                    text = (
                        f"numdrift: {spec.name}: step {step} is the first that differs from {reference}'s; the script "
                        "is run again to take the snapshots of that step"
                    )
                console(stderr=True).print(text, soft_wrap=True)
            if step is not None:
                with reporter_for([spec.name], quiet=quiet) as reporter:
                    finished += execute(planned_again(plan, spec, step, request.choice), reporter).runs
        result = BatchResult(finished, result.interrupted)
    return _show(result, on=request.on, selects=request.selects, quiet=quiet, json_path=json_path)


def _show(result: BatchResult, *, on: str, selects: bool, quiet: bool, json_path: str | None) -> int:
    """Print the snapshots that were taken, and the reason if there are none; return the exit code."""
    snapshots: dict[str, list[SnapshotEntry]] = {}
    for run in result.runs:
        ranks = [rank_folder(run.folder.path, rank) for rank in range(run.manifest.world_size)]
        snapshots[run.manifest.mode] = [entry for folder in ranks for entry in entries_of(folder)]
    if json_path:
        write_json(json_path, {"schema": SCHEMA, "runs": [_record(run, snapshots) for run in result.runs]})
    out, errors = console(), console(stderr=True)
    shown = json_path != "-" and not quiet
    if shown and result.runs:
        rows = table("mode", "status", ">steps", ">snapshots", ">size", "in")
        for run in result.runs:
            entries = [entry for entry in snapshots[run.manifest.mode] if not entry.incomplete]
            rows.add_row(
                run.manifest.mode,
                run.manifest.status,
                f"{run.manifest.steps:,}",
                f"{len(entries):,}",
                in_mib(sum(entry.size for entry in entries)),
                str(run.folder.path / FOLDER) if entries else "-",
            )
        out.print(rows)
    for run in result.runs:
        show_failure(run, errors)
        notices = [notice for notice in run.manifest.notices if not quiet or notice.startswith(INCOMPLETE)]
        for problem in [*run.manifest.problems, *notices]:
            errors.print(f"numdrift: {run.manifest.mode}: {problem}", soft_wrap=True)
        why = "" if snapshots[run.manifest.mode] else _nothing(run, on)
        if why and why not in notices:
            errors.print(f"numdrift: {run.manifest.mode}: {why}", soft_wrap=True)
    if shown and any(snapshots.values()):
        investigation = result.runs[0].folder.path.parent
        out.print(f"`numdrift snapshot list {investigation}` lists them.", soft_wrap=True)
    # A script that only evaluates has no steps, which the batch counts as a failure. Snapshots of its executions are
    # taken all the same.
    if any(entry.incomplete for entries in snapshots.values() for entry in entries):
        return max(result.exit_code, NumdriftError.exit_code)
    if any(run.manifest.failed for run in result.runs) or result.interrupted:
        return result.exit_code
    if all(snapshots.values()):
        return 0 if result.exit_code == NumdriftError.exit_code else result.exit_code
    return max(result.exit_code, UsageError.exit_code if selects and not on else 0)


def _nothing(run: FinishedRun, on: str) -> str:
    """Return why a run has no snapshot; "" if it failed before any execution, since the failure's message says why."""
    event = next(iter(run.journal.events("snapshots")), None)
    if (event is None or not event["ran"]) and run.manifest.failed:
        return ""
    reason = next((text for text in run.manifest.notices if text.startswith(REASONS)), "")
    if reason:
        return reason
    if event is None or not event["ran"]:
        printed = f"its error output is in {run.folder.stderr}"
        return f"no snapshot was taken: no execution was seen; name the script that calls the model ({printed})"
    ran = ", ".join(f"{name} ({count}x)" for name, count in list(event["ran"].items())[:8])
    explanation = {"nonfinite": "every execution returned finite values", "error": "no execution failed"}.get(
        on, "none of the executions was chosen"
    )
    return f"no snapshot was taken: {explanation}; there were {ran} in {event['steps']} steps"


def _record(run: FinishedRun, entries_by_mode: dict[str, list[SnapshotEntry]]) -> dict[str, object]:
    snapshots = [
        {"path": str(entry.path), "bytes": entry.size, "incomplete": entry.incomplete, **entry.facts}
        for entry in entries_by_mode[run.manifest.mode]
    ]
    return {
        "mode": run.manifest.mode,
        "path": str(run.folder.path),
        "status": run.manifest.status,
        "message": run.manifest.message,
        "notices": list(run.manifest.notices),
        "snapshots": snapshots,
    }
