"""`numdrift kernels check`: measures every kernel of an op against a reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from numdrift.kernels.lab.input_sets import INPUT_SETS
from numdrift.kernels.registry import FLOATING, load_target

from ..command_options import force_option, json_option
from .parameters import complete_kernel, op_argument, timeout_option

MEASUREMENT = "numdrift.harness.cli.kernels.measured:check"
"""The function that the command calls. It is loaded late: its module imports torch, which help does not need."""

EXAMPLES = """\b
Examples:
  numdrift kernels check tanh_backward
  numdrift kernels check gelu --inputs random,saturated --dtype bfloat16 --verbose
  numdrift kernels check tanh_backward --kernel fma --kernel tanh_backward=mine.c
  numdrift kernels check native_layer_norm --captured runs/train/cpu --plot errors.png

\b
Input sets:
""" + "".join(f"  {name:<10} {about}\n" for name, about in INPUT_SETS.items()) + """\
  captured   what a run recorded, with --captured

\b
Columns (the worst value over the outputs and the input sets; --verbose prints a row for each input set):
  max, p99, median  |result - exact| in units in the last place (ULP) of the result
  rho               the error divided by the error that rounding the inputs would cause; above 16 is a fault
  bias, z           mean signed error in ULP; if |z| is above 6, the error is systematic: up, down, from 0 or to 0
  differs           share of elements whose bits differ from aten's
  non-finite        how often the reference is finite and the kernel's result is not, or vice versa
The extremes in `special` overflow inside a kernel, so only the last column takes this set into account.

Exit codes: 0 done, 2 wrong usage, 3 a kernel failed.
"""  # fmt: skip


@click.command(epilog=EXAMPLES, help="Measure every kernel of OP against a reference on several input sets.")
@op_argument
@click.option(
    "--kernel", "kernels", multiple=True, shell_complete=complete_kernel, metavar="NAME|OP=PATH",
    help="A kernel to measure, or a C or Python file of your own; may be repeated (default: all kernels).",
)  # fmt: skip
@click.option(
    "--dtype", type=click.Choice(FLOATING), default="float32", show_default=True, help="The dtype of the inputs."
)
@click.option("--inputs", metavar="LIST", help="Input sets, as in random,saturated (default: all).")
@click.option(
    "--captured", "recorded", type=click.Path(path_type=Path), metavar="RUN_OR_FILE",
    help="Also measure on recorded calls, in their own dtype: those in a run's folder, or in one file.",
)  # fmt: skip
@click.option(
    "--samples", type=click.IntRange(16, 10_000_000), default=2048, show_default=True,
    help="The approximate number of elements in an input set.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="The seed of the inputs.")
@click.option("--device", default="cpu", show_default=True, help="The device that the kernels run on.")
@timeout_option
@click.option("--verbose", "-v", is_flag=True, help="Print one line for each input set.")
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="PNG", help="Draw the errors to this file."
)
@force_option
@json_option
def command(**options: Any) -> int:
    code: int = load_target(MEASUREMENT)(**options)
    return code
