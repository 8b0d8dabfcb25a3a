"""`numdrift run`: one reproducer in several modes, recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..api.api_running import planned_run
from ..launch.batch_kernels import stated_kernel
from ..launch.batch_plan import BatchPlan
from ..launch.execute_batch import BatchResult, FinishedRun, execute
from ..launch.supervise import PassThrough
from ..records.mode_spec import parse_mode
from .command_options import (
    arguments_argument,
    chosen_modes,
    force_option,
    jobs_option,
    json_option,
    mode_option,
    modes_option,
    module_option,
    name_option,
    nproc_option,
    out_option,
    quiet_option,
    recording_options,
    script_argument,
    strict_option,
    timeout_option,
)
from .output import console, table, write_json
from .progress import reporter_for

EXAMPLES = """\b
Examples:
  numdrift run train.py --modes cpu,compile,lazy -- --epochs 10
  numdrift run train.py --mode cpu --mode "contracted=compile,contract=fast" --record ops --steps 0-2
  numdrift run train.py --modes cpu,compile --suffix before --name study
  numdrift run -m package.train --modes cpu,compile --strict -- --epochs 10
  numdrift run train.py --modes cpu,compile,lazy --graphs -- --epochs 2
  numdrift run train.py --modes compile,lazy --metrics -- --epochs 2
  numdrift run train.py --mode compile --mode "b=compile,kernel.tanh_backward=fma"
  numdrift run train.py --mode "mine=cpu,kernel.tanh_backward=mine.c" --trace-kernel tanh_backward
  numdrift run train.py --modes cpu,compile --nproc 2
  numdrift run train.py --modes cpu --states 0,10 --name study
  numdrift run train.py --modes compile --resync runs/study/cpu --steps 0,10 --name study

\b
A mode is [NAME=]BASE[,KEY=VALUE]...; the first one is the reference.
  bases  cpu, compile, lazy, xla, cuda, hpu, npu, mps, xpu
  keys   device, backend, dtype, threads, seed, contract, emulate_casts, fallback_random, mark_step,
         execute, python, timeout, env.<NAME>, kernel.<op>[@<module>][:<nth>], decompose.<op>,
         inductor.<option>
"""


@click.command(epilog=EXAMPLES, help="Run SCRIPT in each mode, in a process of its own, and record what happens.")
@script_argument
@arguments_argument
@modes_option
@mode_option
@name_option
@click.option("--suffix", default="", metavar="TAG", help="Tag of this batch, in the names of all its files.")
@recording_options(
    trace_kernels=click.option(
        "--kernel",
        "kernels",
        multiple=True,
        metavar="OP=PATH",
        help="A kernel of your own (.c, .py), by its stem.",
    ),
    instruments=click.option(
        "--resync",
        type=click.Path(path_type=Path),
        metavar="RUN",
        help="Start each of --steps from the state that this run kept there: one step's drift, without "
        "what came before.",
    ),
    sketches=nproc_option,
)
@module_option
@strict_option
@timeout_option
@jobs_option(1)
@click.option(
    "--pass-through",
    is_flag=True,
    help="Behave as `python SCRIPT`: the script's input, output, signals and exit code, and nothing of our own.",
)
@quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Print what the scripts printed, too.")
@out_option
@force_option
@json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    listed: str | None,
    single: tuple[str, ...],
    kernels: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    json_path: str | None,
    **asked: Any,
) -> int:
    modes = chosen_modes(listed, single)
    plan = planned_run(script, modes, arguments, kernels=[stated_kernel(text) for text in kernels], **asked)
    if plan.pass_through:
        return _pass_through(plan)
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    _show(plan, result, console(), quiet=quiet, verbose=verbose, to_stdout=json_path != "-")
    if json_path:
        write_json(json_path, _json(plan, result))
    return result.exit_code


def _pass_through(plan: BatchPlan) -> int:
    """Run the one mode with its streams as ours; gives the script's exit code, as a shell has it for a signal."""
    folder = plan.investigation.run(plan.modes[0].name, plan.suffix)
    streams = {folder.stdout: sys.stdout.buffer, folder.stderr: sys.stderr.buffer}
    result = execute(plan, PassThrough(streams))
    code = next((run.manifest.exit_code for run in result.runs), None)
    if code is None:
        return result.exit_code
    return 128 - code if code < 0 else code


def _show(plan: BatchPlan, result: BatchResult, out: Console, *, quiet: bool, verbose: bool, to_stdout: bool) -> None:
    if to_stdout and not quiet:
        rows = table("mode", "status", ">steps", ">first loss", ">last loss", ">seconds")
        for run in result.runs:
            manifest, losses = run.manifest, run.journal.losses
            first, last = (f"{losses[0]:.6g}", f"{losses[-1]:.6g}") if losses else ("-", "-")
            rows.add_row(manifest.mode, manifest.status, f"{manifest.steps:,}", first, last, f"{manifest.seconds:.1f}")
            for one in manifest.ranks[1:]:  # rank 0 is the run itself
                loss = f"{one['losses'][-1]:.6g}" if one["losses"] else "-"
                rows.add_row(f"  rank {one['rank']}", str(one["status"]), f"{one['steps']:,}", "", loss, "")
        out.print(rows)
        for run in result.runs:
            if run.manifest.agreement is not None:
                out.print(f"{run.manifest.mode}: {run.manifest.agreement['text']}", soft_wrap=True)
        _show_kernel_calls(result, out, plan.trace_kernels)
    if verbose and to_stdout:
        for run in result.runs:
            out.print(f"\n{run.manifest.mode} printed:")
            out.print(run.folder.stdout.read_text(errors="replace").rstrip())
    errors = console(stderr=True)
    for run in result.runs:
        show_failure(run, errors)
        for problem in run.manifest.problems:
            errors.print(f"numdrift: mode {run.manifest.mode}: {problem}", soft_wrap=True)
        if not quiet or not (run.manifest.steps or run.manifest.failed):
            for doubt in run.manifest.adopted.get("doubts", ()):
                if doubt["text"] not in run.manifest.message:
                    errors.print(f"numdrift: {run.manifest.mode}: {doubt['text']}", soft_wrap=True)
        if not quiet:
            for notice in run.manifest.notices:
                errors.print(f"numdrift: {run.manifest.mode}: {notice}", soft_wrap=True)
    if to_stdout and not quiet:
        out.print(f"Wrote {plan.investigation.path}")
        if plan.graphs:
            out.print(f"`numdrift graph list {plan.investigation.path}` shows the graphs.", soft_wrap=True)
        if "metrics" in plan.instruments:
            out.print(f"`numdrift metrics {plan.investigation.path}` shows the metrics.", soft_wrap=True)


def show_failure(run: FinishedRun, errors: Console) -> None:
    manifest = run.manifest
    if manifest.failed:
        kept = f"steps 0 to {manifest.steps - 1} are kept" if manifest.steps else "no step was recorded"
        stderr = run.folder.stderr
        said = stderr.exists() and stderr.stat().st_size
        printed = f", what it printed is in {stderr}" if said else ""
        errors.print(
            f"numdrift: mode {manifest.mode} {manifest.status}: {manifest.message}; {kept}{printed}",
            soft_wrap=True,
        )


def _show_kernel_calls(result: BatchResult, out: Console, ops: Sequence[str]) -> None:
    """The first calls of the traced ops, mode by mode."""
    if not ops:
        return
    rows = table("mode", "op", "kernel", "phase", "module", "called with", "returned")
    for run in result.runs:
        for call in run.journal.events("kernel-call"):
            place = "-" if call["module"] is None else call["module"] or "(root)"
            arguments, results = "\n".join(call["arguments"]), "\n".join(call["results"])
            rows.add_row(run.manifest.mode, call["op"], call["kernel"], call["phase"], place, arguments, results)
    out.print()
    out.print(rows if rows.row_count else f"No mode showed a call of {' or '.join(ops)}.")
    for mode, op in _unseen(result, ops):
        out.print(
            f"{mode} shows no call of {op}: where a compiler takes the op apart, kernel.{op}=aten keeps it whole and "
            "visible.",
            soft_wrap=True,
        )
    if any((run.folder.path / "kernels").exists() for run in result.runs):
        out.print("Their inputs are kept: numdrift kernels check OP --captured RUN measures every kernel on them.")


def _unseen(result: BatchResult, ops: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The compiled modes, and the traced ops of which they showed no call."""
    for run in result.runs:
        shown = {call["op"] for call in run.journal.events("kernel-call")}
        base = parse_mode(run.manifest.spec).base
        yield from ((run.manifest.mode, op) for op in ops if base == "compile" and op not in shown)


def _json(plan: BatchPlan, result: BatchResult) -> dict[str, Any]:
    return {
        "schema": 1,
        "investigation": str(plan.investigation.path),
        "interrupted": result.interrupted,
        "runs": [
            {
                "path": str(run.folder.path),
                **run.manifest.to_json(),
                "kernel_calls": list(run.journal.events("kernel-call")),
            }
            for run in result.runs
        ],
    }
