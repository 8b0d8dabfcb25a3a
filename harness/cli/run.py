"""`numdrift run`: one reproducer in several modes, recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..errors import UsageError
from ..launch.batch_kernels import stated_kernel
from ..launch.batch_options import kept_states, measured, resynced, steps_of_graphs
from ..launch.batch_plan import BatchPlan
from ..launch.execute_batch import BatchResult, FinishedRun, execute
from ..launch.pass_through import PassThrough
from ..launch.reproducer import asked_for
from ..records.mode_spec import parse_mode, parse_modes
from ..records.run_config import FIRST_STEPS, LEVELS
from ..records.step_selection import KeepParams, StepSelection
from ..runs.run_layout import check_name, choose_investigation
from .output import console, force_option, json_option, number, out_option, table, write_json
from .processes import nproc_option, rank_rows
from .progress import reporter_for
from .script_argument import module_option, script_argument, strict_option

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


@click.command(
    epilog=EXAMPLES, help="Run SCRIPT in each mode, in a process of its own, and record what happens."
)
@script_argument
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--modes", "listed", metavar="LIST", help="Modes by base, as in cpu,compile,lazy.")
@click.option("--mode", "single", multiple=True, metavar="SPEC", help="One mode in full; may be repeated.")
@click.option("--name", help="Name of the investigation (default: the script's, numbered).")
@click.option("--suffix", default="", metavar="TAG", help="Tag of this batch, in the names of all its files.")
@click.option(
    "--record",
    type=click.Choice(LEVELS),
    default="params",
    show_default=True,
    help="Losses; parameters and digests of them and of gradients; digests of every op; every op's output.",
)
@click.option(
    "--steps", default="", metavar="LIST", help="Steps to record in detail, as in 0,5,10-19 (default all)."
)
@click.option("--keep-params", default="all", metavar="POLICY", help="Values kept: all, last or every=N.")
@click.option(
    "--keep-budget", type=click.FloatRange(min=0, min_open=True), default=256.0, show_default=True, metavar="MIB",
    help="Disk for a run's parameter values; beyond it every second is dropped.",
)  # fmt: skip
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="OP=PATH",
    help="A kernel of your own (.c, .py), by its stem.",
)
@click.option(
    "--trace-kernel", "trace_kernels", multiple=True, metavar="OP", help="Show the first calls of an op."
)
@click.option(
    "--graphs",
    is_flag=True,
    envvar="GRAPH_VISUALIZATION",
    show_envvar=True,
    help="Capture each mode's graphs, before and after its compiler; `numdrift graph` shows them.",
)
@click.option(
    "--graph-steps",
    metavar="LIST",
    help=f"Steps whose graphs are captured, each graph when it is first seen (default {FIRST_STEPS}).",
)
@click.option(
    "--states",
    metavar="LIST",
    help="Keep the training's state as it is at the beginning of these steps (all, or as in 0,5,10-19), for --resync.",
)
@click.option(
    "--resync",
    type=click.Path(path_type=Path),
    metavar="RUN",
    help="Start each of --steps from the state that this run kept there: one step's drift, without what came before.",
)
@click.option(
    "--metrics",
    is_flag=True,
    help="Measure what each mode's backend compiles, executes and transfers; `numdrift metrics` shows it.",
)
@nproc_option
@click.option(
    "--sketches",
    is_flag=True,
    help="Keep a linear sketch of every tensor and gradient: sharded runs, which have them anyway, are compared with these.",
)
@module_option
@strict_option
@click.option("--timeout", type=float, metavar="SECONDS", help="End a run that takes longer.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Runs side by side at a time."
)
@click.option(
    "--pass-through",
    is_flag=True,
    help="Behave as `python SCRIPT`: the script's input, output, signals and exit code, and nothing of our own.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print failures and nothing else.")
@click.option("--verbose", "-v", is_flag=True, help="Print what the scripts printed, too.")
@out_option
@force_option
@json_option
def command(**options: Any) -> int:
    plan = _plan(**options)
    if plan.pass_through:
        return _pass_through(plan)
    names = [spec.name for spec in plan.modes]
    with reporter_for(names, quiet=options["quiet"]) as reporter:
        result = execute(plan, reporter)
    _show(plan, result, console(), options)
    if options["json_path"]:
        write_json(options["json_path"], _json(plan, result))
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


def _plan(script: str | None, arguments: tuple[str, ...], **options: Any) -> BatchPlan:
    suffix = check_name("--suffix", options["suffix"]) if options["suffix"] else ""
    if options["listed"] is None and not options["single"]:
        raise UsageError("no mode is given; for example --modes cpu,compile,lazy")
    reproducer, arguments = asked_for(script, options["module"], arguments)
    return BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        strict=options["strict"],
        pass_through=options["pass_through"],
        modes=parse_modes(options["listed"], options["single"]),
        investigation=choose_investigation(options["out"], reproducer.named_after, options["name"], suffix),
        arguments=arguments,
        suffix=suffix,
        record=options["record"],
        steps=StepSelection.parse(options["steps"]),
        keep_params=KeepParams.parse(options["keep_params"]),
        value_budget=int(options["keep_budget"] * 2**20),
        timeout=options["timeout"],
        jobs=options["jobs"],
        force=options["force"],
        kernels=[stated_kernel(text) for text in options["kernels"]],
        trace_kernels=options["trace_kernels"],
        graphs=options["graphs"],
        graph_steps=steps_of_graphs(options["graph_steps"], options["graphs"]),
        states=kept_states(options["states"]),
        nproc=options["nproc"],
        sketches=options["sketches"],
        instruments=measured(options["metrics"], options["graphs"]),
        **resynced(options["resync"], StepSelection.parse(options["steps"])),
    )


def _show(plan: BatchPlan, result: BatchResult, out: Console, options: dict[str, Any]) -> None:
    to_stdout = options["json_path"] != "-"
    if to_stdout and not options["quiet"]:
        rows = table("mode", "status", ">steps", ">first loss", ">last loss", ">seconds")
        for run in result.runs:
            first, last = _losses(run)
            manifest = run.manifest
            rows.add_row(
                manifest.mode, manifest.status, f"{manifest.steps:,}", first, last, f"{manifest.seconds:.1f}"
            )
            for name, status, steps, loss in rank_rows(manifest):
                rows.add_row(name, status, steps, "", loss, "")
        out.print(rows)
        for run in result.runs:
            if run.manifest.agreement is not None:
                out.print(f"{run.manifest.mode}: {run.manifest.agreement['text']}", soft_wrap=True)
        _show_kernel_calls(result, out, options["trace_kernels"])
    if options["verbose"] and to_stdout:
        for run in result.runs:
            out.print(f"\n{run.manifest.mode} printed:")
            out.print(run.folder.stdout.read_text(errors="replace").rstrip())
    errors = console(stderr=True)
    for run in result.runs:
        show_failure(run, errors)
        for problem in run.manifest.problems:
            errors.print(f"numdrift: mode {run.manifest.mode}: {problem}", soft_wrap=True)
        if not options["quiet"] or not (run.manifest.steps or run.manifest.failed):
            for doubt in run.manifest.adopted.get("doubts", ()):
                if doubt["text"] not in run.manifest.message:
                    errors.print(f"numdrift: {run.manifest.mode}: {doubt['text']}", soft_wrap=True)
        if not options["quiet"]:
            for notice in run.manifest.notices:
                errors.print(f"numdrift: {run.manifest.mode}: {notice}", soft_wrap=True)
    if to_stdout and not options["quiet"]:
        out.print(f"Wrote {plan.investigation.path}")
        if plan.graphs:
            out.print(f"`numdrift graph list {plan.investigation.path}` shows the graphs.", soft_wrap=True)
        if "metrics" in plan.instruments:
            out.print(f"`numdrift metrics {plan.investigation.path}` shows the metrics.", soft_wrap=True)


def show_failure(run: FinishedRun, errors: Console) -> None:
    manifest = run.manifest
    if manifest.failed:
        kept = f"steps 0 to {manifest.steps - 1} are kept" if manifest.steps else "no step was recorded"
        printed = f", what it printed is in {run.folder.stderr}" if _has_content(run.folder.stderr) else ""
        errors.print(
            f"numdrift: mode {manifest.mode} {manifest.status}: {manifest.message}; {kept}{printed}",
            soft_wrap=True,
        )


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _show_kernel_calls(result: BatchResult, out: Console, ops: Sequence[str]) -> None:
    """The first calls of the traced ops, mode by mode."""
    if not ops:
        return
    rows = table("mode", "op", "kernel", "phase", "module", "called with", "returned")
    for run in result.runs:
        for call in run.journal.events("kernel-call"):
            place = "-" if call["module"] is None else call["module"] or "(root)"
            arguments, results = "\n".join(call["arguments"]), "\n".join(call["results"])
            rows.add_row(
                run.manifest.mode, call["op"], call["kernel"], call["phase"], place, arguments, results
            )
    out.print()
    out.print(rows if rows.row_count else f"No mode showed a call of {' or '.join(ops)}.")
    for mode, op in _unseen(result, ops):
        out.print(
            f"{mode} shows no call of {op}: where a compiler takes the op apart, kernel.{op}=aten keeps it whole and "
            "visible.",
            soft_wrap=True,
        )
    if any((run.folder.path / "kernels").exists() for run in result.runs):
        out.print(
            "Their inputs are kept: numdrift kernels check OP --captured RUN measures every kernel on them."
        )


def _unseen(result: BatchResult, ops: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The compiled modes, and the traced ops of which they showed no call."""
    for run in result.runs:
        shown = {call["op"] for call in run.journal.events("kernel-call")}
        base = parse_mode(run.manifest.spec).base
        yield from ((run.manifest.mode, op) for op in ops if base == "compile" and op not in shown)


def _losses(run: FinishedRun) -> tuple[str, str]:
    losses = run.journal.losses
    return (f"{losses[0]:.6g}", f"{losses[-1]:.6g}") if losses else (number(None), number(None))


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
