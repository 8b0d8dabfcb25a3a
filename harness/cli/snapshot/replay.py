"""`numdrift snapshot replay`: executes a snapshot again."""

from __future__ import annotations

from pathlib import Path

import click

from numdrift.kernels.registry import load_target

from ..command_options import json_option
from .show import file_argument

REPLAYING = "numdrift.harness.cli.snapshot.contents:replay"
"""The function that the command calls. It is loaded late: its module imports torch, which help does not need."""

EXAMPLES = """\b
Examples:
  numdrift snapshot replay SNAPSHOT
  numdrift snapshot replay SNAPSHOT --mode cpu
  numdrift snapshot replay SNAPSHOT --mode "compile,contract=fast" --json -

\b
A replay needs only the file, not the script or the run. An eager mode executes the ops one by one; any other mode's
backend compiles them as a graph. Random ops return the values that they drew.

\b
An output is within rounding if its distance from the recorded output is at most 16 times the distance by which
random rounding after every op moves it, and if NaN and infinities are in the same places. Distances are L2 norms;
the distance of random rounding is the root mean square of 8 repetitions. If an output depends on draws of
Inductor's own generator, it cannot be compared in another mode, and counts neither as within rounding nor as beyond.
Exit codes: 0 every output is identical, within rounding or not comparable (or a recorded error is raised again),
1 an output is beyond rounding, 2 the file cannot be read or executed, or there is no such mode, 3 the mode's
device or package is not on this machine.
"""


@click.command(epilog=EXAMPLES, help="Execute the snapshot in FILE, and compare the results with the recorded ones.")
@file_argument
@click.option(
    "--mode", metavar="SPEC", help="The mode to execute the snapshot in (default: the mode in which it was taken)."
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; the exit code is the answer.")
@json_option
def command(file: Path, mode: str | None, quiet: bool, json_path: str | None) -> int:
    code: int = load_target(REPLAYING)(file, mode, quiet=quiet, json_path=json_path)
    return code
