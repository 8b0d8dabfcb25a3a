"""`numdrift baseline save`: trains a script, and packs its baseline for the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...api.gating import SIZE_LIMIT, saved
from ...investigate.experiments.investigation_plan import InvestigationRequest
from ...records.modes.mode_spec import parse_mode
from .. import command_options as options
from ..investigate import CommandLineProgress
from ..output import console, require_new, write_json

EXAMPLES = """\b
Examples:
  numdrift baseline save train.py --to baselines/train.zip -- --steps 6
  numdrift baseline save train.py --mode compile --steps 0,5 --max-steps 6
  numdrift baseline save -m package.train --limit 1 --force

\b
SCRIPT is trained twice. The archive has the losses, the digests of every step, the environment, the revision of the
repository, and for some steps the state, the outcome and the rounding noise. It contains parameters and gradients.
"""


@click.command(epilog=EXAMPLES, help="Train SCRIPT, and pack its baseline for the repository.")
@options.script_argument
@options.arguments_argument
@click.option(
    "--to", "to", type=click.Path(path_type=Path), default=Path("numdrift-baseline.zip"), show_default=True,
    help="The archive to write.",
)  # fmt: skip
@click.option("--mode", "mode", default="cpu", show_default=True, metavar="SPEC", help="The mode of the training.")
@options.option_of(
    InvestigationRequest, "steps", help="Steps to keep, as in 0,5,10-19 (default: 8 steps, as far as they fit)."
)
@click.option(
    "--limit", type=click.FloatRange(min=0, min_open=True), default=SIZE_LIMIT, show_default=True, metavar="MIB",
    help="The largest size of the archive.",
)  # fmt: skip
@options.options_of(InvestigationRequest, "max_steps", "timeout", "module")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    to: Path,
    mode: str,
    limit: float,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, settings | {"state_budget": limit})
    require_new(json_path, force=request.force)
    baseline = saved(request, to, limit, CommandLineProgress(quiet=quiet))
    if json_path:
        write_json(json_path, {"path": str(to), "bytes": to.stat().st_size, **baseline.to_json()}, force=request.force)
    if json_path != "-" and not quiet:
        out, steps = console(), ", ".join(map(str, baseline.steps))
        out.print(f"{to} has the steps {steps}, {to.stat().st_size / 2**20:.2f} MiB.")
        if not baseline.revision:
            out.print("It names no revision, because the script is not committed: a check will name no cause.")
        out.print(f"To compare with it: numdrift baseline check {to}", soft_wrap=True)
    return 0
