"""`numdrift run`: runs a script in several modes and records the runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from ..api.api_running import BatchRequest, planned_batch
from ..drift.setup.met_in_files import met_in_files
from ..launch.batch_plan import BatchPlan
from ..launch.execute_batch import BatchResult, FinishedRun, execute
from ..launch.own_folders import in_words
from ..launch.supervise import PassThrough
from ..records.frames import REFUSED
from ..records.modes.mode_registry import OWN, VENDORS
from ..records.modes.mode_spec import parse_mode
from ..runs.journal import StepRecord
from ..runs.run_layout import KEPT
from . import command_options as options
from .output import console, table, write_json
from .progress import reporter_for

EXAMPLES = f"""\b
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
A mode is written as [NAME=]BASE[,KEY=VALUE]... The first mode is the reference.
  bases  {", ".join([*(entry.name for entry in OWN), *VENDORS])}
  keys   device, backend, dtype, threads, seed, contract, emulate_casts, fallback_random, allow_rnn,
         graph_cache, draws, mark_step, execute, python, timeout, script, git, cwd, args, args+, env.<NAME>,
         kernel.<op>[@<module>][:<nth>],
         decompose.<op>, inductor.<option>, dynamic, the settings tf32, matmul_precision, sdpa,
         cudnn, mkldnn, benchmark, reduced_precision_reduction, deterministic, and other ways to
         execute: optimizer, clipping, zero_grad, checkpointing, memory_format, workers
"""


@click.command(epilog=EXAMPLES, help="Run SCRIPT once in each mode, in separate processes, and record what happens.")
@options.script_argument
@options.arguments_argument
@options.modes_option
@options.mode_option
@options.name_option
@options.options_of(BatchRequest, "suffix")
@options.recording_options(
    trace_kernels=options.options_of(BatchRequest, "kernels"),
    instruments=options.options_of(BatchRequest, "resync"),
    sketches=options.options_of(BatchRequest, "nproc"),
)
@options.options_of(BatchRequest, "module", "strict", "timeout", "jobs")
@click.option(
    "--pass-through",
    is_flag=True,
    help="Behave like `python SCRIPT`: pass input, output, signals and exit code through, and print nothing else.",
)
@options.quiet_option
@click.option("--verbose", "-v", is_flag=True, help="Also print what the scripts printed, and their error output.")
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    listed: str | None,
    single: tuple[str, ...],
    pass_through: bool,
    quiet: bool,
    verbose: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    modes = options.chosen_modes(listed, single)
    plan = planned_batch(BatchRequest.of(script, modes, arguments, settings, pass_through=pass_through))
    if plan.pass_through:
        # The script's output and exit code are passed on. If signal N ended it, the code is 128 + N, as in a shell.
        folder = plan.investigation.run(plan.modes[0].name, plan.suffix)
        result = execute(plan, PassThrough({folder.stdout: sys.stdout.buffer, folder.stderr: sys.stderr.buffer}))
        code = next((run.manifest.exit_code for run in result.runs), None)
        if code is None:
            return result.exit_code
        return 128 - code if code < 0 else code
    for text in () if quiet else plan.interpreters:
        console(stderr=True).print(text, soft_wrap=True)
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    if json_path != "-":
        _show(plan, result, console(), quiet=quiet, verbose=verbose)
    _complain(result, quiet=quiet)
    if json_path != "-" and not quiet:
        _show_files(plan, result, console())
        investigation = plan.investigation.path
        console().print(f"Wrote {investigation}")
        if plan.graphs:
            console().print(f"`numdrift graph list {investigation}` shows the graphs.", soft_wrap=True)
        if "metrics" in plan.instruments:
            console().print(f"`numdrift metrics {investigation}` shows the metrics.", soft_wrap=True)
    if json_path:
        write_json(json_path, _json(plan, result))
    return result.exit_code


def _show(plan: BatchPlan, result: BatchResult, out: Console, *, quiet: bool, verbose: bool) -> None:
    """Print a row for each run and rank, the calls of traced ops, and with `verbose` the scripts' output."""
    if not quiet:
        rows = table("mode", "status", ">steps", ">first loss", ">last loss", ">seconds")
        for run in result.runs:
            manifest = run.manifest
            series = [(name, series_losses(steps)) for name, steps in run.journal.series().items()]
            losses = series[0][1] if len(series) == 1 else []
            first, last = (f"{losses[place]:.6g}" if losses else "-" for place in (0, -1))
            rows.add_row(manifest.mode, manifest.status, f"{manifest.steps:,}", first, last, f"{manifest.seconds:.1f}")
            for name, losses in series if len(series) > 1 else ():  # optimizers that take turns
                first, last = (f"{losses[place]:.6g}" if losses else "-" for place in (0, -1))
                rows.add_row(f"  {name}", "", f"{len(losses):,}", first, last, "")
            for rank in manifest.ranks[1:]:  # rank 0 is the run itself
                loss = f"{rank['losses'][-1]:.6g}" if rank["losses"] else "-"
                rows.add_row(f"  rank {rank['rank']}", str(rank["status"]), f"{rank['steps']:,}", "", loss, "")
        out.print(rows)
        for run in result.runs:
            if run.manifest.agreement is not None:
                out.print(f"{run.manifest.mode}: {run.manifest.agreement['text']}", soft_wrap=True)
        if plan.trace_kernels:
            _show_kernel_calls(result, out, plan.trace_kernels)
    if verbose:
        for run in result.runs:
            for file, where in ((run.folder.stdout, "printed"), (run.folder.stderr, "printed as error output")):
                text = file.read_text(errors="replace").rstrip() if file.exists() else ""
                if text or file == run.folder.stdout:
                    out.print(f"\n{run.manifest.mode} {where}:")
                    out.print(text, markup=False, highlight=False)


def series_losses(steps: Sequence[StepRecord]) -> list[float]:
    """Return the losses of the steps that have one."""
    return [record.loss for record in steps if record.loss is not None]


def _show_files(plan: BatchPlan, result: BatchResult, out: Console) -> None:
    """Print which files the scripts wrote and where these are; runs with the same files share a line."""
    modes_by_text: dict[str, list[str]] = {}
    for run in result.runs:
        files = run.manifest.files
        if files is None:
            continue
        if files.written:
            destination = f"kept in {KEPT}/ of each run" if files.kept else "which is deleted (--keep-files keeps it)"
            text = f"{in_words(files.written, files.more)} in its own working folder, {destination}"
            modes_by_text.setdefault(text, []).append(run.manifest.mode)
        if files.outside:
            folder = "" if files.own or plan.in_place else f"; no run has a working folder of its own here: {files.why}"
            text = f"{in_words(files.outside, 0)}{', outside of its working folder' if files.own else folder}"
            modes_by_text.setdefault(text, []).append(run.manifest.mode)
    for text, modes in modes_by_text.items():
        out.print(f"{', '.join(modes)}: {text}", soft_wrap=True)
    for sentence in met_in_files({run.manifest.mode: run.manifest for run in result.runs}):
        out.print(sentence, soft_wrap=True)


def _complain(result: BatchResult, *, quiet: bool) -> None:
    """Print failures, problems, doubts and notices on standard error.

    With `quiet`, print no notices, and print doubts only for a run that ended well without a step.
    """
    errors = console(stderr=True)
    for run in result.runs:
        manifest = run.manifest
        show_failure(run, errors)
        for problem in manifest.problems:
            errors.print(f"numdrift: mode {manifest.mode}: {problem}", soft_wrap=True)
        # If a run ends well without a step, numdrift did not understand the script, and the doubts say why.
        if not quiet or not (manifest.steps or manifest.failed):
            for doubt in manifest.adopted.get("doubts", ()):
                if doubt["text"] not in manifest.message:
                    errors.print(f"numdrift: {manifest.mode}: {doubt['text']}", soft_wrap=True)
        for notice in () if quiet else manifest.notices:
            errors.print(f"numdrift: {manifest.mode}: {notice}", soft_wrap=True)


def show_failure(run: FinishedRun, errors: Console) -> None:
    """Print how a run failed, which of its steps are kept, and where its output is; print nothing if it succeeded."""
    manifest, stderr = run.manifest, run.folder.stderr
    if manifest.failed:
        kept_steps = f"steps 0 to {manifest.steps - 1} are kept" if manifest.steps else "no step was recorded"
        printed = f"; its error output is in {stderr}" if stderr.exists() and stderr.stat().st_size else ""
        ended = "was refused" if manifest.status == REFUSED else manifest.status
        text = f"numdrift: mode {manifest.mode} {ended}: {manifest.message}; {kept_steps}{printed}"
        errors.print(text, soft_wrap=True)


def _show_kernel_calls(result: BatchResult, out: Console, ops: Sequence[str]) -> None:
    """Print the first calls of the traced ops by mode, and why a compiled mode may show none."""
    rows = table("mode", "op", "kernel", "phase", "module", "called with", "returned")
    unseen: list[tuple[str, str]] = []
    for run in result.runs:
        calls = run.journal.events("kernel-call")
        for call in calls:
            place = "-" if call["module"] is None else call["module"] or "(root)"
            arguments, results = "\n".join(call["arguments"]), "\n".join(call["results"])
            rows.add_row(run.manifest.mode, call["op"], call["kernel"], call["phase"], place, arguments, results)
        if parse_mode(run.manifest.spec).capabilities.compiles:
            shown = {call["op"] for call in calls}
            unseen += [(run.manifest.mode, op) for op in ops if op not in shown]
    out.print()
    out.print(rows if rows.row_count else f"No mode showed a call of {' or '.join(ops)}.")
    for mode, op in unseen:
        out.print(
            f"{mode} shows no call of {op}. If its compiler decomposes the op, kernel.{op}=aten keeps the op whole and "
            "visible.",
            soft_wrap=True,
        )
    if any((run.folder.path / "kernels").exists() for run in result.runs):
        out.print(
            "The inputs of these calls are kept. `numdrift kernels check OP --captured RUN` measures every kernel on "
            "them."
        )


def _json(plan: BatchPlan, result: BatchResult) -> dict[str, object]:
    runs = [
        {"path": str(run.folder.path), **run.manifest.to_json(), "kernel_calls": run.journal.events("kernel-call")}
        for run in result.runs
    ]
    return {
        "schema": 1,
        "investigation": str(plan.investigation.path),
        "interrupted": result.interrupted,
        "runs": runs,
    }
