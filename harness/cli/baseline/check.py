"""`numdrift baseline check`: trains a script, and compares the training with its baseline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from ...api.gating import checked
from ...investigate.experiments.investigation_plan import InvestigationRequest
from ...records.modes.mode_spec import parse_mode
from ...report.ci_files import annotation_lines, junit_xml
from .. import command_options as options
from ..investigate import CommandLineProgress
from ..output import console, require_new, write_json, write_text

EXAMPLES = """\b
Examples:
  numdrift baseline check baselines/train.zip
  numdrift baseline check baselines/train.zip --junit report.xml
  numdrift baseline check baselines/train.zip --script train.py --mode compile -- --steps 6

\b
The script, its arguments and the mode are those of the baseline unless they are stated. identical and rounding pass,
so the machine need not be the same one. For any other verdict, the baseline's revision is trained here as well, if
the repository has it, and both are investigated: that names the cause.
Exit codes: 0 the training passes, 1 it does not, 2 wrong usage, 3 the run failed.
"""


@click.command(epilog=EXAMPLES, help="Train a script, and compare the training with its BASELINE.")
@click.argument("baseline", type=click.Path(path_type=Path), default=Path("numdrift-baseline.zip"))
@options.arguments_argument
@click.option("--script", metavar="PATH", help="The training script (default: the baseline's).")
@click.option("--mode", "mode", metavar="SPEC", help="The mode (default: the baseline's).")
@click.option("--causes/--no-causes", default=True, help="Find the cause with the baseline's revision (default: yes).")
@click.option("--junit", "junit", metavar="FILE", help="Write the result as JUnit XML.")
@click.option(
    "--annotations/--no-annotations",
    "annotated",
    default=None,
    help="Print annotations for a workflow of GitHub (default: where GITHUB_ACTIONS is true).",
)
@options.options_of(InvestigationRequest, "timeout", "jobs", "module")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    baseline: Path,
    arguments: tuple[str, ...],
    script: str | None,
    mode: str | None,
    causes: bool,
    junit: str | None,
    annotated: bool | None,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    modes = [] if mode is None else [parse_mode(mode)]
    request = InvestigationRequest.of(script, modes, arguments, settings)
    for path in (json_path, junit):
        require_new(path, force=request.force)
    found = checked(request, baseline, CommandLineProgress(quiet=quiet), causes=causes)
    if junit is not None:
        write_text(Path(junit), junit_xml(found))
    if json_path:
        write_json(json_path, found.to_json(), force=request.force)
    if json_path != "-":
        out = console()
        if not quiet or not found.passes:
            out.print(found.message, soft_wrap=True)
        if annotated or (annotated is None and os.environ.get("GITHUB_ACTIONS") == "true"):
            for line in annotation_lines(found):
                print(line)
    return found.exit_code
