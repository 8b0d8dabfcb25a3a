"""`numdrift snapshot show`: shows the contents of one snapshot."""

from __future__ import annotations

from pathlib import Path

import click

from numdrift.kernels.registry import load_target

from ..command_options import json_option

SHOWING = "numdrift.harness.cli.snapshot.contents:show"
"""The function that the command calls. It is loaded late: its module imports torch, which help does not need."""

EXAMPLES = """\b
Examples:
  numdrift snapshot show runs/train/compile/snapshots/0-forward-step000003-execution000003.safetensors
  numdrift snapshot show SNAPSHOT --json -
  numdrift snapshot show SNAPSHOT --hlo

\b
An input or output is named by its role in the script (parameter, gradient, input) or, if it has none, by the op that
made it. `saved` values are those that a forward keeps for its backward.
"""

file_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE")


@click.command(epilog=EXAMPLES, help="Show the contents of the snapshot in FILE: its ops, its inputs and its outputs.")
@file_argument
@click.option("--hlo", is_flag=True, help="For a snapshot of mode xla: print only the HLO that XLA received.")
@json_option
def command(file: Path, hlo: bool, json_path: str | None) -> int:
    code: int = load_target(SHOWING)(file, json_path, hlo=hlo)
    return code
