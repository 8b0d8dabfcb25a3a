"""`numdrift localize`: finds the ops that make two recorded runs differ, and proves it by swapping them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..api.investigating import localized
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..runs.recorded_run import load_run
from .command_options import force_option, json_option, options_of
from .investigate import CommandLineProgress, frames_option, show, suspects_option
from .output import console, require_new, write_json

EXAMPLES = """\b
Examples:
  numdrift localize runs/train/cpu runs/train/compile
  numdrift localize runs/train/cpu runs/train/compile --step 12 --json -

\b
RUN_A is the reference. Both runs must be in one investigation, recorded by `numdrift run` or `numdrift
investigate`. Missing runs that the verdict needs are recorded first. Then one step of RUN_B starts from RUN_A's
state and is compared, op by op, with the same step of RUN_A. Every op whose results differ is swapped in and out.
Exit codes: 0 no drift beyond rounding, 1 drift beyond rounding or another verdict that needs attention,
2 wrong usage, 3 a run failed.
"""


@click.command(epilog=EXAMPLES, help="Find the ops that make RUN_B differ from RUN_A, and prove their effect.")
@click.argument("run_a", type=click.Path(path_type=Path))
@click.argument("run_b", type=click.Path(path_type=Path))
@click.option(
    "--step", type=click.IntRange(min=0), metavar="N",
    help="The step to examine (default: the first significant step).",
)  # fmt: skip
@options_of(InvestigationRequest, "knobs", "partition_bisect")
@suspects_option
@frames_option
@options_of(InvestigationRequest, "timeout", "jobs")
@click.option("--quiet", "-q", is_flag=True, help="Print only the findings.")
@force_option
@json_option
def command(
    run_a: Path,
    run_b: Path,
    quiet: bool,
    suspects: bool,
    frames: bool,
    force: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    require_new(json_path, force=force)
    request = InvestigationRequest(**settings)
    findings, _ = localized(load_run(run_a), load_run(run_b), request, CommandLineProgress(quiet=quiet))
    if json_path:
        write_json(json_path, findings.to_json(), force=force)
    if json_path != "-":
        show(console(), findings, suspects=suspects, frames=frames)
    return findings.exit_code
