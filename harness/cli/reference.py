"""`numdrift reference`: packs a training that other machines compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..api.referencing import packed_reference
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..records.codec import plain
from ..records.modes.mode_spec import parse_mode
from . import command_options as options
from .investigate import CommandLineProgress
from .output import console, require_new, write_json

EXAMPLES = """\b
Examples:
  numdrift reference train.py --to ref.zip -- --epochs 1
  numdrift reference train.py --mode cuda --steps 0,10,100 --keep ops --to ref.zip
  numdrift investigate train.py --mode "new=cuda" --against ref.zip

\b
SCRIPT is trained twice in one mode. The archive has the losses, the digests of every step, and for some steps the
state, the outcome and the rounding noise. It contains parameters and gradients, but neither the script nor its
output. `numdrift investigate --against` compares modes with it, without running the reference.
"""


@click.command(epilog=EXAMPLES, help="Pack a training of SCRIPT, for comparisons on other machines.")
@options.script_argument
@options.arguments_argument
@click.option(
    "--to", "to", type=click.Path(path_type=Path), default=Path("reference.zip"), show_default=True,
    help="The archive to write.",
)  # fmt: skip
@click.option("--mode", "mode", default="cpu", show_default=True, metavar="SPEC", help="The mode of the training.")
@options.option_of(
    InvestigationRequest, "steps", help="Steps to keep, as in 0,5,10-19 (default: 8 steps, as far as they fit)."
)
@click.option(
    "--keep", type=click.Choice(["states", "ops"]), default="states", show_default=True,
    help="Of the kept steps, also keep the ops and the values that they read, so that causes can be found.",
)  # fmt: skip
@options.options_of(InvestigationRequest, "state_budget", "name", "max_steps", "timeout", "module")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    to: Path,
    mode: str,
    keep: str,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, settings)
    require_new(json_path, force=request.force)
    packed = packed_reference(request, to, CommandLineProgress(quiet=quiet), ops=keep == "ops")
    size, run, steps = to.stat().st_size, packed.run, packed.steps
    if json_path:
        content = {"path": str(to), "steps": steps, "bytes": size, "files": plain(packed.bundle.files)}
        write_json(json_path, {"schema": 1, **content}, force=request.force)
    if json_path != "-" and not quiet:
        out, listed = console(), ", ".join(map(str, steps))
        out.print(f"{to} has {len(steps)} of {run.manifest.steps} steps ({listed}), {size / 2**20:.1f} MiB.")
        command = f"numdrift investigate {run.manifest.reproducer} --against {to}"
        out.print(f"To compare with it: {command}", soft_wrap=True)
    return 0
