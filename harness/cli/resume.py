"""`numdrift resume`: ends a training, starts it again, and says what it did not restore."""

from __future__ import annotations

from typing import Any

import click

from ..api.resuming import ResumeRequest, resumed
from ..records.modes.mode_spec import parse_mode
from . import command_options as options
from .investigate import CommandLineProgress
from .output import console, require_new, table, write_json

EXAMPLES = """\b
Examples:
  numdrift resume train.py --at 50 --with "--resume ckpt.pt" -- --epochs 2
  numdrift resume train.py --at 20 --max-steps 30 --crash
  numdrift resume -m package.train --at 5 --json -

\b
The training is ended after step 50, as if the process had been stopped: the script still does what it does between
this step and the next, such as writing a checkpoint. Then it is started again, with its own files and the arguments
of --with, and compared with the training that was never interrupted. All runs write to folders of their own.
Exit codes: 0 the resumed training continues bit for bit, 1 something is not restored, 2 wrong usage, 3 a run failed.
"""


@click.command(epilog=EXAMPLES, help="End the training of SCRIPT, start it again, and say what it did not restore.")
@options.script_argument
@options.arguments_argument
@options.options_of(ResumeRequest, "at", "restart", "crash")
@click.option("--mode", "mode", default="cpu", show_default=True, metavar="SPEC", help="The mode of all runs.")
@options.options_of(ResumeRequest, "name", "max_steps", "timeout", "module")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    mode: str,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    request = ResumeRequest.of(script, [parse_mode(mode)], arguments, settings)
    require_new(json_path, force=request.force)
    found = resumed(request, CommandLineProgress(quiet=quiet))
    if json_path:
        write_json(json_path, found.to_json(), force=request.force)
    if json_path != "-" and not quiet:
        out = console()
        out.print(f"{found.answer[0].upper()}{found.answer[1:]}.", soft_wrap=True)
        if found.not_restored and not found.begins_anew:
            rows = table("not restored", "difference")
            for item in found.not_restored:
                rows.add_row(item.kind, item.text)
            out.print()
            out.print(rows)
    return found.exit_code
