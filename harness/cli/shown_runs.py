"""The output of `numdrift run`: a table of the runs, the files that they wrote, failures and notices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from ..drift.setup.met_in_files import met_in_files
from ..launch.batch_plan import BatchPlan
from ..launch.execute_batch import BatchResult, FinishedRun
from ..launch.own_folders import in_words
from ..records.frames import REFUSED
from ..records.modes.mode_spec import parse_mode
from ..runs.journal import StepRecord
from ..runs.run_layout import KEPT
from .output import console, table, write_json


@dataclass(frozen=True, slots=True)
class ShownRuns:
    """The output of the command: only failures if `quiet`, the scripts' output if `verbose`, JSON to `json_path`."""

    quiet: bool
    verbose: bool
    json_path: str | None

    def begin(self, plan: BatchPlan) -> None:
        for text in () if self.quiet else plan.interpreters:
            console(stderr=True).print(text, soft_wrap=True)

    def end(self, plan: BatchPlan, result: BatchResult) -> None:
        if self.json_path != "-":
            _show(plan, result, console(), quiet=self.quiet, verbose=self.verbose)
        _complain(result, quiet=self.quiet)
        if self.json_path != "-" and not self.quiet:
            _show_files(plan, result, console())
            investigation = plan.investigation.path
            console().print(f"Wrote {investigation}")
            if plan.graphs:
                console().print(f"`numdrift graph list {investigation}` shows the graphs.", soft_wrap=True)
            if "metrics" in plan.instruments:
                console().print(f"`numdrift metrics {investigation}` shows the metrics.", soft_wrap=True)
        if self.json_path:
            write_json(self.json_path, _json(plan, result))


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
    manifest = run.manifest
    rank = re.match(r"rank (\d+): ", manifest.message)
    stderr = run.folder.rank(int(rank[1]) if rank else 0).stderr
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
