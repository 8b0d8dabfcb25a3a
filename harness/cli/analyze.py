"""`numdrift analyze`: asks a mode's backend which operators of a training script it supports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..records.modes.mode_spec import parse_mode
from ..tools.support.support_analysis import AnalysisRequest, SupportAnalysis, analysis_plan, analyzed
from .command_options import (
    arguments_argument,
    json_option,
    option_of,
    options_of,
    out_option,
    quiet_option,
    script_argument,
)
from .output import console, table, text_or_count, write_json
from .progress import reporter_for

EXAMPLES = """\b
Examples:
  numdrift analyze train.py -- --epochs 2
  numdrift analyze train.py --mode compile --dry
  numdrift analyze train.py --mode lazy --analyze-verbosity 1 --json -
  numdrift analyze train.py --mode "cuda,dtype=bfloat16" --max-steps 1 --output reports/cuda.json
  numdrift analyze -m package.train --mode compile -- --config tiny

\b
An operator is unsupported if it falls back to the CPU, if Inductor leaves it to ATen's kernels, or if its call
raises an error. The percentage counts the backend's own instructions, not operators.
Exit codes: 0 the analysis is complete, whatever it found; 2 wrong usage; 3 the script failed for another reason,
or never reached the backend.
"""


@click.command(
    epilog=EXAMPLES, help="Run SCRIPT in one mode and report which of its operators the mode's backend supports."
)
@script_argument
@arguments_argument
@click.option(
    "--mode", "mode", default="lazy", show_default=True, metavar="SPEC", help="The mode whose backend is analyzed."
)
@options_of(AnalysisRequest, "dry", "max_steps", "max_seconds")
@click.option(
    "--analyze-verbosity", "verbosity", type=click.Choice(["1", "2"]), default="2", show_default=True,
    help="2: list aten operators. 1: also list the backend's instructions, each with the operator it came from.",
)  # fmt: skip
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("model_analysis_result/result.json"),
    show_default=True, metavar="FILE",
    help="The file for the report. A page (.html) is written next to it. Existing files are replaced.",
)  # fmt: skip
@out_option
@option_of(AnalysisRequest, "timeout", help="End a script that takes longer than SECONDS.")
@options_of(AnalysisRequest, "module")
@json_option
@quiet_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    mode: str,
    verbosity: str,
    output: Path,
    json_path: str | None,
    quiet: bool,
    **settings: Any,
) -> int:
    plan = analysis_plan(AnalysisRequest.of(script, [parse_mode(mode)], arguments, settings, output=output))
    with reporter_for([spec.name for spec in plan.modes], quiet=quiet) as reporter:
        analysis = analyzed(plan, reporter, int(verbosity))
    replaced = analysis.write(output)
    if json_path:
        write_json(json_path, analysis.to_json())
    if json_path != "-" and not quiet:
        _show(analysis, console(), instructions=verbosity == "1")
        for path in (output, output.with_suffix(".html")):
            which = ", which replaces an earlier one" if path in replaced else ""
            console().print(f"Wrote {path}{which}", soft_wrap=True)
    errors = console(stderr=True)
    for notice in analysis.run.manifest.notices:
        errors.print(f"numdrift: {notice}", soft_wrap=True)
    if analysis.ended_early:
        errors.print(f"numdrift: {analysis.ended_early}", soft_wrap=True)
    return analysis.exit_code


def _show(analysis: SupportAnalysis, out: Console, *, instructions: bool) -> None:
    """Print the operators, the backend's instructions if requested, why calls are unsupported, and the percentage."""
    report, record, manifest = analysis.report, analysis.report.record, analysis.run.manifest
    rows = table("operator", ">calls", "supported", "configuration", "failure at", "call")
    # one row per unsupported call, since each may fail differently; one row per supported operator
    for entry in report.unsupported:
        call = entry.call
        rows.add_row(call.kind, f"{entry.count:,}", "no", call.configuration, call.failure_at, call.call)
    for row in report.supported:
        rows.add_row(
            row.kind, f"{row.count:,}", "yes",
            text_or_count(row.configurations, "configurations"), "", text_or_count(row.calls, "lines"),
        )  # fmt: skip
    out.print(rows)
    if instructions:
        out.print()
        rows = table(f"{record.instruction_set} instruction", "from", ">times", "supported")
        for line in sorted(report.instructions, key=lambda line: line.supported):  # unsupported ones first
            rows.add_row(line.text, line.kind, f"{line.count:,}", "yes" if line.supported else "no")
        out.print(rows)
    out.print()
    for why in dict.fromkeys(f"{entry.call.kind}: {entry.call.reason}" for entry in report.unsupported):
        out.print(why, soft_wrap=True)
    for note in record.notes:
        out.print(note, soft_wrap=True)
    ending = "captured without executing it" if record.dry else manifest.status
    steps = f"{manifest.steps:,} {'step' if manifest.steps == 1 else 'steps'}" if manifest.steps else "no step"
    mode_spec = replace(parse_mode(analysis.mode), python=None)
    out.print(
        f"{mode_spec} supports {report.percentage} of {len(report.instructions)} different "
        f"{record.instruction_set} instructions ({record.backend}; {steps}, {ending}).",
        soft_wrap=True,
    )
