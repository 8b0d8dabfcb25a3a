"""`numdrift partition`: a model's supported operators on a mode's backend, and the rest on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from numdrift.kernels.registry import load_target

from ..errors import AdoptionError, UsageError
from ..observers.partition.partition_journal import PartitionRecord
from ..records.mode_registry import registry
from ..records.mode_spec import ModeSpec, parse_mode
from ..records.partition_limits import UNLIMITED, PartitionConfig, refuse_swaps
from ..tools.partition_run import Partitioned, is_factory, partition_module, partition_script
from .command_options import json_option, module_option, out_option
from .output import console, write_json
from .partition_tables import show
from .progress import reporter_for

PRESENCE = "numdrift.harness.backends.mode_presence:require_here"
"""Imports torch, which help does without."""

EXAMPLES = """\b
Examples:
  numdrift partition train.py --mode lazy -- --epochs 2
  numdrift partition train.py --mode compile --steps 2 --check
  numdrift partition model.py:MLP --inference --max-subgraph-count 2
  numdrift partition model.py:MLP --bisect
  numdrift partition package.model:make --ops-to-partition aten::log_softmax --min-operator-percentage-threshold 0.8
  numdrift partition -m package.train --mode compile --json -

\b
TARGET is a training script, whose models are partitioned for the run, forward and backward; or FILE.py:FACTORY or
package.module:FACTORY, a function or class that makes a module. What the module is called with is its attribute
`example_inputs`, or a variable or function of that name beside the factory; it is held against itself unpartitioned.
Exit codes: 0 partitioned, 2 wrong usage or a limit that is broken, 3 the script or the module failed.
"""


@click.command(
    epilog=EXAMPLES,
    help="Put what a mode's backend supports of TARGET's model there, and the rest on the CPU, and run it.",
)
@click.argument("target", required=False, type=click.UNPROCESSED)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option(
    "--mode",
    "mode",
    default="compile",
    show_default=True,
    metavar="SPEC",
    help="The mode whose backend is used.",
)
@click.option(
    "--min-operator-percentage-threshold",
    "threshold",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="FRACTION",
    help="Refuse where less than this fraction of a graph's operators is supported.",
)
@click.option(
    "--min-subgraph-size",
    "smallest",
    type=int,
    default=UNLIMITED,
    metavar="N",
    help="Refuse where a subgraph has fewer operators.",
)
@click.option(
    "--max-subgraph-count",
    "most",
    type=int,
    default=UNLIMITED,
    metavar="N",
    help="Refuse where a graph has more subgraphs.",
)
@click.option(
    "--ops-to-partition",
    "moved",
    multiple=True,
    metavar="LIST",
    help="Operators to put on the CPU besides, as in aten::log_softmax,aten::gelu; may be repeated.",
)
@click.option("--inference", is_flag=True, help="Of a module: evaluate it, and compute no gradients.")
@click.option(
    "--bisect",
    is_flag=True,
    help="Of a module: find the operators that carry its drift, by moving parts of it to the CPU.",
)
@click.option(
    "--check", is_flag=True, help="Of a script: run it unpartitioned, too, and say how far apart both are."
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    metavar="N",
    help="End the script after N steps (default: its own end).",
)
@click.option("--name", help="Name of the investigation (default: the script's, numbered).")
@click.option("--timeout", type=float, metavar="SECONDS", help="End a process that takes longer.")
@module_option
@out_option
@json_option
@click.option("--quiet", "-q", is_flag=True, help="Print failures and nothing else.")
def command(
    target: str | None,
    arguments: tuple[str, ...],
    mode: str,
    threshold: float,
    smallest: int,
    most: int,
    moved: tuple[str, ...],
    quiet: bool,
    json_path: str | None,
    **options: Any,
) -> int:
    named = [one for text in moved for one in text.split(",") if one.strip()]
    config = PartitionConfig(threshold, smallest, most, named)
    spec = parse_mode(mode)
    _require(spec)
    done = _partitioned(target, arguments, spec, config, quiet=quiet, **options)
    if json_path:
        write_json(json_path, done.to_json())
    if json_path != "-" and not quiet:
        show(console(), done)
    return _exit_code(done)


def _require(spec: ModeSpec) -> None:
    """Find out what the mode does not have before anything is started. Raises NotAvailable and UsageError."""
    refuse_swaps(spec)
    registry.entry(spec.base)
    load_target(PRESENCE)(spec)


def _partitioned(
    target: str | None,
    arguments: tuple[str, ...],
    spec: ModeSpec,
    config: PartitionConfig,
    *,
    quiet: bool,
    module: str | None,
    inference: bool,
    bisect: bool,
    check: bool,
    steps: int | None,
    out: Path,
    name: str | None,
    timeout: float | None,
) -> Partitioned:
    if module is None and target is not None and is_factory(target):
        if check or steps or arguments:
            raise UsageError(f"{target} is a module: --check, --steps and arguments are of a script")
        place = target.rpartition(":")[0]
        if place.endswith(".py") and not Path(place).is_file():
            raise UsageError(f"there is no file {place}; give it as FILE.py:FACTORY")
        if not quiet:
            console(stderr=True).print(f"{spec.name}: partitioning {target}")
        return partition_module(
            target, spec, config, out, name, inference=inference, bisect=bisect, timeout=timeout
        )
    if inference:
        raise UsageError("--inference is of a module (FILE.py:FACTORY); a script evaluates where it does")
    if bisect:
        raise UsageError(
            "--bisect is of a module (FILE.py:FACTORY); of a script: `numdrift investigate --partition-bisect`"
        )
    names = [f"partitioned-{spec.name}", *(["cpu"] if check else [])]
    with reporter_for(names, quiet=quiet) as reporter:
        return partition_script(
            target, module, arguments, spec, config, reporter,
            check=check, steps=steps, out=out, name=name, timeout=timeout,
        )  # fmt: skip


def _exit_code(done: Partitioned) -> int:
    """Say why it failed, and give the code for it. Raises UsageError for a limit that is broken."""
    record = done.record
    if record.violated:
        raise UsageError(record.violated)
    if record.failure and record.exit_code == UsageError.exit_code:
        raise UsageError(record.failure)
    if record.failure or done.failure:
        raise AdoptionError(f"{record.failure or done.failure}; {done.where}")
    if not record.graphs:
        raise AdoptionError(f"nothing was partitioned: {_why_nothing(record)}; {done.where}")
    return 0


def _why_nothing(record: PartitionRecord) -> str:
    return "; ".join(record.notes) or "no model was called, or its forward could not be captured"
