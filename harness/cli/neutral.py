"""`numdrift neutral`: tries the changes that should not matter to a training, and prints what they did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from rich.console import Console

from ..api.neutral_changes import CHANGES, tried
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..records.modes.mode_spec import parse_mode
from ..records.results.neutral_matrix import NeutralMatrix
from . import command_options as options
from .investigate import CommandLineProgress, show_answers, show_pair
from .output import console, number, require_new, table, write_json

EXAMPLES = f"""\b
Examples:
  numdrift neutral train.py -- --epochs 1
  numdrift neutral train.py --max-steps 20 --mode cuda
  numdrift neutral train.py --change checkpointing --change optimizer-fused --json -

\b
Changes: {", ".join(change.name for change in CHANGES[:6])},
  {", ".join(change.name for change in CHANGES[6:13])},
  {", ".join(change.name for change in CHANGES[13:])}

\b
The script is not modified: each change is a key of a mode. A change that has no effect on the first step is not
investigated. Runs that exist are used again.
Exit codes: 0 no change matters beyond rounding, 1 one does or is undecided, 2 wrong usage, 3 a run failed.
"""


@click.command(epilog=EXAMPLES, help="Try changes of how SCRIPT is executed that should not matter, and say which do.")
@options.script_argument
@options.arguments_argument
@click.option(
    "--change", "changes", multiple=True, metavar="NAME", help="Try only this change; may be repeated (default: all)."
)
@click.option("--mode", "mode", default="cpu", show_default=True, metavar="SPEC", help="The mode of the reference.")
@options.options_of(InvestigationRequest, "name", "max_steps", "timeout", "jobs", "module")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    changes: tuple[str, ...],
    mode: str,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, settings)
    require_new(json_path, force=request.force)
    matrix, findings = tried(request, changes, CommandLineProgress(quiet=quiet))
    if json_path:
        write_json(json_path, matrix.to_json(), force=request.force)
    if json_path != "-" and not quiet:
        out = console()
        _show(out, matrix)
        names = {change.name for change in matrix.changes if change.matters}
        if findings is not None and names:
            mattering = [pair for pair in findings.pairs if pair.b in names]
            show_answers(out, replace(findings, pairs=mattering))
            for pair in mattering:
                show_pair(out, pair)
    return findings.exit_code if findings is not None else matrix.exit_code


def _show(out: Console, matrix: NeutralMatrix) -> None:
    out.print(f"{matrix.answer[0].upper()}{matrix.answer[1:]}.\n", soft_wrap=True)
    rows = table("change", "what it does", "outcome", ">largest z", ">threshold")
    for change in matrix.changes:
        outcome = change.outcome or "undecided"
        rows.add_row(change.name, change.title, outcome, number(change.score), number(change.threshold))
    out.print(rows)
    out.print()
