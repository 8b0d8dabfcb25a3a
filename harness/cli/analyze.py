"""`numdrift analyze`: which operators of a training a mode's backend supports, asked of the backend itself."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..batch.execute import BatchResult, FinishedRun, execute
from ..batch.plan import BatchPlan
from ..batch.reproducer import asked_for
from ..errors import AdoptionError, UsageError
from ..json_text import json_text
from ..modes.registry import registry
from ..modes.spec import ModeSpec, parse_mode
from ..runs.layout import choose_investigation
from ..support.page.support_page import write_page
from ..support.record import SupportRecord, read_support
from ..support.report import SupportReport, report_json, report_of
from .output import console, json_option, table, write_json
from .progress import reporter_for
from .script import module_option, script_argument

DRY_STEPS = 2
"""Steps of a dry run: the second one differs where an optimizer makes its state in the first."""

EXAMPLES = """\b
Examples:
  numdrift analyze train.py -- --epochs 2
  numdrift analyze train.py --mode compile --dry
  numdrift analyze train.py --mode lazy --analyze-verbosity 1 --json -
  numdrift analyze train.py --mode "cuda,dtype=bfloat16" --steps 1 --out reports/cuda.json
  numdrift analyze -m package.train --mode compile -- --config tiny

\b
Unsupported is what the backend itself hands on or refuses: an operator that falls back to the CPU, that Inductor leaves
to ATen's kernels, or whose call raises. The percentage is over the backend's own instructions, not over operators.
Exit codes: 0 the analysis is done, whatever it found; 2 wrong usage; 3 the script failed for a reason of its own, or
gave the backend nothing.
"""


@click.command(
    epilog=EXAMPLES,
    help="Run SCRIPT in one mode and report which of its operators the mode's backend supports.",
)
@script_argument
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--mode", "mode", default="lazy", show_default=True, metavar="SPEC", help="The mode to ask.")
@click.option(
    "--dry",
    is_flag=True,
    help=f"Capture and lower, and execute nothing on the backend: what is read is zeros (default {DRY_STEPS} steps).",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="End the script after N steps (default: its own end).",
)
@click.option(
    "--analyze-verbosity",
    "verbosity",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="2: aten operators. 1: the backend's instructions, too, and which operator each came from.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("model_analysis_result/result.json"),
    show_default=True,
    help="The report; a page (.html) is written beside it. An existing one is replaced.",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="The folder that the run itself is recorded in.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="End a script that takes longer.")
@module_option
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Print failures and nothing else.")
def command(
    script: str | None,
    arguments: tuple[str, ...],
    mode: str,
    out: Path,
    verbosity: str,
    json_path: str | None,
    quiet: bool,
    **options: Any,
) -> int:
    spec = parse_mode(mode)
    plan = _plan(script, arguments, spec, **options)
    _require(spec, str(plan.script), dry=options["dry"])
    with reporter_for([spec.name], quiet=quiet) as reporter:
        result = execute(plan, reporter)
    if result.interrupted or not result.runs:
        return result.exit_code
    run = result.runs[0]
    analysis = _Analysis(_record(run, result), run, str(plan.script), str(spec))
    content = analysis.content(int(verbosity))
    written = _write({out: json_text(content), out.with_suffix(".html"): analysis.page()})
    if json_path:
        write_json(json_path, content)
    if json_path != "-" and not quiet:
        _show(analysis, console(), instructions=verbosity == "1")
        for line in written:
            console().print(line, soft_wrap=True)
    return _exit_code(analysis)


def _plan(
    script: str | None,
    arguments: tuple[str, ...],
    spec: ModeSpec,
    *,
    module: str | None,
    dry: bool,
    steps: int | None,
    runs: Path,
    timeout: float | None,
) -> BatchPlan:
    reproducer, arguments = asked_for(script, module, arguments)
    last = steps or (DRY_STEPS if dry else None)
    return BatchPlan(
        script=reproducer.path,
        module=reproducer.module,
        modes=[spec],
        investigation=choose_investigation(runs, reproducer.named_after, None, ""),
        arguments=arguments,
        record="losses",
        timeout=timeout,
        until=None if last is None else last - 2,  # the step after it is the last
        instruments={"support": {"dry": dry}},
    )


def _require(spec: ModeSpec, script: str, *, dry: bool) -> None:
    """Find out before anything is started what the mode does not have. Raises NotAvailable."""
    adapter = registry.load(spec.base)(spec).adapter()
    adapter.observe_support(script, lambda _: None)
    if dry:
        adapter.without_execution()


def _record(run: FinishedRun, result: BatchResult) -> SupportRecord:
    """What the run has written. Raises UsageError for a mode that was refused, AdoptionError when there is nothing."""
    record = read_support(run.folder.path)
    if record is not None and record.calls:
        return record
    manifest = run.manifest
    why = f"{manifest.status}: {manifest.message}" if manifest.message else f"the script is {manifest.status}"
    said = "; ".join([why, *manifest.notices])
    if result.exit_code == UsageError.exit_code:
        raise UsageError(said)
    raise AdoptionError(
        f"nothing was analysed, the script gave mode {manifest.mode} no operator ({said}); "
        f"what it printed is in {run.folder.stderr}"
    )


@dataclass(frozen=True, slots=True)
class _Analysis:
    """A record with the run that it is of."""

    record: SupportRecord
    run: FinishedRun
    path: str
    mode: str

    @property
    def report(self) -> SupportReport:
        return report_of(self.record)

    @property
    def script(self) -> Mapping[str, Any]:
        manifest = self.run.manifest
        return {
            "path": self.path,
            "arguments": list(manifest.arguments),
            "status": manifest.status,
            "message": manifest.message,
            "steps": manifest.steps,
            "run": str(self.run.folder.path),
            "notices": list(manifest.notices),
        }

    def content(self, verbosity: int) -> dict[str, Any]:
        return report_json(self.report, self.mode, self.script, _version(), verbosity)

    def page(self) -> str:
        return write_page(self.report, self.mode, self.script, _version())


def _version() -> str:
    return importlib.metadata.version("numdrift")


def _write(files: Mapping[Path, str]) -> list[str]:
    """Write the files and say of each whether it replaced one. Raises UsageError."""
    said = []
    for path, text in files.items():
        there = path.exists()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        said.append(f"Wrote {path}, which replaces an earlier one" if there else f"Wrote {path}")
    return said


def _show(analysis: _Analysis, out: Console, *, instructions: bool) -> None:
    report, record, manifest = analysis.report, analysis.record, analysis.run.manifest
    rows = table("operator", ">calls", "supported", "configuration", "failure at", "call")
    for one in report.unsupported:
        call = one.call
        rows.add_row(call.kind, f"{one.count:,}", "no", call.configuration, call.failure_at, call.call)
    for row in report.supported:
        rows.add_row(
            row.kind, f"{row.count:,}", "yes",
            _one_or_many(row.configurations, "configurations"), "", _one_or_many(row.calls, "lines"),
        )  # fmt: skip
    out.print(rows)
    if instructions:
        out.print()
        rows = table(f"{record.instruction_set} instruction", "from", ">times", "supported")
        for line in sorted(report.instructions, key=lambda line: line.supported):
            rows.add_row(line.text, line.kind, f"{line.count:,}", "yes" if line.supported else "no")
        out.print(rows)
    out.print()
    for why in dict.fromkeys(f"{one.call.kind}: {one.call.reason}" for one in report.unsupported):
        out.print(why, soft_wrap=True)
    for note in record.notes:
        out.print(note, soft_wrap=True)
    how = "captured without executing it" if record.dry else manifest.status
    steps = (
        f"{manifest.steps:,} {'step' if manifest.steps == 1 else 'steps'}" if manifest.steps else "no step"
    )
    out.print(
        f"{analysis.mode} supports {report.percentage} of {len(report.instructions)} different "
        f"{record.instruction_set} instructions ({record.backend}; {steps}, {how}).",
        soft_wrap=True,
    )


def _one_or_many(texts: Sequence[str], what: str) -> str:
    return f"{len(texts)} {what}" if len(texts) > 1 else "".join(texts)


def _exit_code(analysis: _Analysis) -> int:
    """0 for an analysis that is done, also where the backend's failure has ended the script; 3 for any other failure,
    also of the analysis itself."""
    manifest, errors = analysis.run.manifest, console(stderr=True)
    for notice in manifest.notices:
        errors.print(f"numdrift: {notice}", soft_wrap=True)
    if any(notice.startswith("support failed") for notice in manifest.notices):
        return AdoptionError.exit_code
    if not manifest.failed:
        return 0
    reasons = [one.call.reason for one in analysis.report.unsupported]
    by_backend = any(reason in manifest.message or "stay on the CPU" in reason for reason in reasons)
    where = "an operator that the backend cannot do" if by_backend else "an error"
    errors.print(
        f"numdrift: {where} ended the script ({manifest.message}); the report has what ran until then",
        soft_wrap=True,
    )
    return 0 if by_backend else AdoptionError.exit_code
