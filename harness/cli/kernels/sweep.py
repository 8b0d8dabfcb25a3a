"""`numdrift kernels sweep`: an op's kernels on all inputs of a dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from numdrift.kernels.registry import load_target

from ..command_options import force_option, json_option, out_option
from .parameters import complete_kernel, op_argument, timeout_option

MEASUREMENT = "numdrift.harness.cli.kernels.measured:sweep"
"""The function that the command calls. It is loaded late: its module imports torch, which help does not need."""

DTYPES = ("float32", "bfloat16", "float16")
"""The names of the lab's `ENCODINGS`."""

EXAMPLES = """\b
Examples:
  numdrift kernels sweep tanh
  numdrift kernels sweep gelu --dtype bfloat16 --hold approximate=tanh --plot gelu.png
  numdrift kernels sweep tanh_backward --range 0.99:1 --kernel aten --kernel decomposed --json errors.json
"""


@click.command(
    epilog=EXAMPLES,
    help="Measure the error of OP's kernels on all inputs of a dtype, against a reference that the output names. If a "
    "sweep was interrupted, the same command resumes it.",
)
@op_argument
@click.option(
    "--dtype", type=click.Choice(DTYPES), default="float32", show_default=True, help="The dtype of the inputs."
)
@click.option(
    "--kernel", "kernels", multiple=True, shell_complete=complete_kernel, metavar="NAME|OP=PATH",
    help="A kernel to measure, or a C or Python file of your own; may be repeated (default: all kernels; but "
    "only aten if all inputs of float32 are measured).",
)  # fmt: skip
@click.option(
    "--vary", metavar="ARGUMENT", help="The argument that is varied over all inputs (default: the last tensor)."
)
@click.option(
    "--hold",
    multiple=True,
    metavar="NAME=VALUE",
    help="A fixed value for another argument; may be repeated (default for tensors: 1).",
)
@click.option("--range", "bounds", metavar="LOW:HIGH", help="Measure only the inputs from LOW to HIGH.")
@timeout_option
@click.option("--jobs", type=click.IntRange(min=1), help="The number of threads (default: one per core).")
@out_option
@json_option
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="PNG",
              help="Draw the error against the input.")  # fmt: skip
@force_option
@click.option("--fresh", is_flag=True, help="Measure everything again, and ignore the results of earlier sweeps.")
def command(**options: Any) -> int:
    code: int = load_target(MEASUREMENT)(**options)
    return code
