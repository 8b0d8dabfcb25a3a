"""`numdrift partition`: runs a model's supported operators on a mode's backend, and the rest on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console

from ..api.backend_support import partitioned, require_parts
from ..observers.partition.partition_journal import TensorCheck
from ..records.modes.mode_spec import parse_mode
from ..records.tools.partition_record import UNLIMITED, GraphPartition, PartitionConfig, PartitionedOperator
from ..tools.partition_run import Partitioned, PartitionRequest
from .command_options import (
    arguments_argument,
    json_option,
    option_of,
    options_of,
    out_option,
    quiet_option,
)
from .output import console, number, table, text_or_count, write_json
from .progress import reporter_for

EXAMPLES = """\b
Examples:
  numdrift partition train.py --mode lazy -- --epochs 2
  numdrift partition train.py --mode compile --max-steps 2 --check
  numdrift partition model.py:MLP --inference --max-subgraph-count 2
  numdrift partition model.py:MLP --bisect
  numdrift partition package.model:make --ops-to-partition aten::log_softmax --min-operator-percentage-threshold 0.8
  numdrift partition -m package.train --mode compile --json -

\b
TARGET is a training script or a factory of a module. The models of a script are partitioned while it runs, both
forward and backward. A factory is a function or class that makes a module, written as FILE.py:FACTORY or
package.module:FACTORY. The module's inputs are its attribute `example_inputs`, or a variable or function of that
name next to the factory. The partitioned module is compared with the unpartitioned one.
Exit codes: 0 partitioned, 2 wrong usage or a limit exceeded, 3 the script or the module failed.
"""


@click.command(
    epilog=EXAMPLES,
    help="Run TARGET's model. Operators that a mode's backend supports run on that backend, and all others on the CPU.",
)
@click.argument("target", required=False, type=click.UNPROCESSED)
@arguments_argument
@click.option(
    "--mode", "mode", default="compile", show_default=True, metavar="SPEC", help="The mode whose backend is used."
)
@click.option(
    "--min-operator-percentage-threshold", "threshold", type=click.FloatRange(0, 1), default=0.0, metavar="FRACTION",
    help="Refuse to partition if less than this fraction of a graph's operators is supported.",
)  # fmt: skip
@click.option(
    "--min-subgraph-size", "smallest", type=int, default=UNLIMITED, metavar="N",
    help="Refuse to partition if a subgraph has fewer than N operators.",
)  # fmt: skip
@click.option(
    "--max-subgraph-count", "most", type=int, default=UNLIMITED, metavar="N",
    help="Refuse to partition if a graph has more than N subgraphs.",
)  # fmt: skip
@click.option(
    "--ops-to-partition", "moved", multiple=True, metavar="LIST",
    help="Further operators to put on the CPU, as in aten::log_softmax,aten::gelu; may be repeated.",
)  # fmt: skip
@options_of(PartitionRequest, "inference", "bisect", "check", "max_steps", "max_seconds", "name")
@option_of(PartitionRequest, "timeout", help="End a process that takes longer than SECONDS.")
@options_of(PartitionRequest, "module")
@out_option
@json_option
@quiet_option
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
    named = [name for text in moved for name in text.split(",") if name.strip()]
    config = PartitionConfig(threshold, smallest, most, named)
    errors = console(stderr=True)
    done = partitioned(
        PartitionRequest.of(target, [parse_mode(mode)], arguments, options, config=config),
        lambda names: reporter_for(names, quiet=quiet),
        lambda text: None if quiet else errors.print(text),
    )
    if json_path:
        write_json(json_path, done.to_json())
    if json_path != "-" and not quiet:
        _show(console(), done)
    require_parts(done)  # after the results are shown, because they say where the partition failed
    return 0


def _show(out: Console, done: Partitioned) -> None:
    """Print every graph that differs from all earlier graphs, and the results of the checks."""
    shown: list[GraphPartition] = []

    def content_of(graph: GraphPartition) -> tuple[object, ...]:
        return graph.phase, graph.module, graph.operators, graph.subgraphs

    for graph in done.record.graphs:
        if all(content_of(graph) != content_of(printed) for printed in shown):
            shown.append(graph)
            _show_graph(out, graph, done.record.backend)
    repeated = len(done.record.graphs) - len(shown)
    if repeated:
        more = "1 more graph is" if repeated == 1 else f"{repeated} more graphs are"
        out.print(f"{more} partitioned like one of these.")
    for note in done.record.notes:
        out.print(note, soft_wrap=True)
    if done.record.checks:
        sentences = (
            _checked(kind, [check for check in done.record.checks if check.what == kind])
            for kind in ("output", "gradient")
        )
        out.print(" ".join(sentences).strip(), soft_wrap=True)
    bisection = done.record.bisection
    if bisection is not None and not bisection.whole:
        out.print("Nothing drifts, so there is nothing to bisect.")
    elif bisection is not None:
        # drifts are relative to the largest value of the output or gradient that drifts furthest
        rows = table("carries drift", "module", "line", ">alone on the backend", ">left without it")
        for carrier in bisection.carriers:
            kinds = ", ".join(operator.operator for operator in carrier.operators)
            modules = ", ".join(dict.fromkeys(operator.module for operator in carrier.operators if operator.module))
            lines = ", ".join(dict.fromkeys(operator.line for operator in carrier.operators if operator.line))
            rows.add_row(kinds, modules, lines, number(carrier.alone), number(carrier.without))
        out.print(rows)
        drift = number(bisection.whole)
        out.print(f"The whole module drifts by {drift} (relative); {bisection.count} partitions were executed.")
    comparison = done.comparison
    if comparison is not None and comparison.identical:
        steps_text = (
            f"{comparison.common_steps:,} common steps" if comparison.cut_short else f"all {comparison.steps_b:,} steps"
        )
        out.print(f"Identical to the unpartitioned run on the CPU, in {steps_text}.", soft_wrap=True)
    elif comparison is not None:
        step, relative = comparison.first_differing_step, comparison.losses.max_relative
        since = "" if step is None else f" from step {step} on"
        losses = "but its losses are equal"
        if relative:
            losses = f"and its losses differ by at most {number(relative)} of their value"
        out.print(
            f"Differs from the unpartitioned run on the CPU{since}, {losses}; `numdrift "
            f"compare {done.path}` shows more.",
            soft_wrap=True,
        )
    out.print(f"Wrote {done.path}")


def _show_graph(out: Console, graph: GraphPartition, backend: str) -> None:
    """Print a graph's operators, then its subgraphs. Unsupported operators come first, each in a row of its own."""
    counted = "operators as written" if graph.as_written else "operators as dispatched"
    out.print(f"{graph.module}, {graph.phase} ({counted})", style="bold")
    # networks repeat their layers, so the supported operators of one kind on one device share a row
    together: dict[tuple[str, str], list[PartitionedOperator]] = {}
    for row in graph.operators:
        if row.supported:
            together.setdefault((row.kind, row.device), []).append(row)
    groups = [[row] for row in graph.operators if not row.supported] + list(together.values())
    rows = table("operator", ">count", "supported", "runs on", "configuration", "line", "why")
    for group in groups:
        first_row = group[0]
        moved = "ops_to_partition" if first_row.moved else ""
        rows.add_row(
            first_row.kind,
            f"{sum(row.count for row in group):,}",
            "yes" if first_row.supported else "no",
            first_row.device,
            text_or_count([row.configuration for row in group], "configurations"),
            text_or_count([row.call for row in group], "lines"),
            moved if first_row.supported else f"{first_row.failure_at}: {first_row.reason}",
        )
    out.print(rows)
    out.print(f"{graph.percentage:.2f}% of operators ({graph.supported} of {graph.total}) are supported by {backend}")
    rows = table(">subgraph", "runs on", ">operators", "which")
    for subgraph in graph.subgraphs:
        which = ", ".join(f"{kind}:{count}" for kind, count in subgraph.operators.items())
        rows.add_row(str(subgraph.number), subgraph.device, f"{subgraph.size:,}", which)
    out.print(rows)
    out.print()


def _checked(kind: str, checks: Sequence[TensorCheck]) -> str:
    """Return a sentence on how far a module's outputs or gradients are from those of the unpartitioned module."""
    if not checks:
        return ""
    identical = sum(check.identical for check in checks)
    plural = "s" * (len(checks) != 1)
    verb = "is" if 1 in (identical, len(checks)) else "are"
    sentence = f"{identical} of {len(checks)} {kind}{plural} {verb} identical to the unpartitioned module's"
    if identical == len(checks):
        return f"{sentence}."
    worst = max(checks, key=lambda check: check.relative)
    how = "differs" if len(checks) - identical == 1 else "differs the most for its size,"
    return (
        f"{sentence}; {kind} {worst.name} {how} by at most {number(worst.largest)} (its largest absolute value is "
        f"{number(worst.scale)})."
    )
