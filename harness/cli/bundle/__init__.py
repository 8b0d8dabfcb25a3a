"""`numdrift bundle`: an investigation in one archive, for the maintainers of a kernel."""

from __future__ import annotations

from typing import Any

import click

from ..program import LazyGroup

COMMANDS = {
    "make": "Pack an investigation; `numdrift bundle INVESTIGATION` does the same.",
    "show": "List the contents of a bundle.",
    "open": "Check a bundle, unpack it, and replay its contents.",
}

EXAMPLES = """\b
Examples:
  numdrift bundle runs/train
  numdrift bundle runs/train --redact --to train.zip
  numdrift bundle runs/train --to s3://bucket/train.zip
  numdrift bundle show train.zip
  numdrift bundle open s3://bucket/train.zip --to train --replay
"""


class BundleGroup(LazyGroup):
    """A group of commands. If its first argument is no command, it is an investigation to pack."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS:  # `numdrift bundle runs/train`
            args = ["make", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["make", *args]
        return super().parse_args(ctx, args)


command = BundleGroup(
    "bundle",
    package=__name__,
    summaries=COMMANDS,
    epilog=EXAMPLES,
    subcommand_metavar="INVESTIGATION | COMMAND [ARGS]...",
    help="Pack an investigation into one archive, or open such an archive. An archive contains the findings, the "
    "graphs, the culprits' scripts, and the snapshots.",
)
