"""`numdrift graph diff`: shows where the graphs of two runs differ."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console

from ...api.chosen_runs import graphs_to_compare
from ...errors import CollisionError, UsageError
from ...graphs.diff.difference_record import SCHEMA, Diff
from ...graphs.diff.graph_comparison import compare_graphs, count_rows, pair_rows
from ...graphs.run_graphs import RunGraphs
from ...records.tools.graph_record import PHASES
from ...runs.recorded_run import is_there
from ..command_options import force_option, json_option, out_option
from ..output import console, table, write_json, write_text

Pair = tuple[RunGraphs, RunGraphs]

MODULES = 3
"""The maximum number of modules that a row names. Further modules are only counted."""

EXAMPLES = """\b
Examples:
  numdrift graph diff runs/train/lazy runs/train/compile
  numdrift graph diff runs/train --modes lazy,compile --phase backward
  numdrift graph diff runs/train
  numdrift graph diff runs/train/lazy runs/train/compile --html diff.html

\b
The command compares the ops of one step as they are before the mode's compiler changes them. It counts an op as
often as it runs. Variants of an op count as one op: for example add_, _foreach_add_ and add, or t, t_copy and
permute. Ops that change no values (views, fills, detach, clone) are shown only with --all. But a copy that changes
the memory layout of an input of a product or sum is always shown, because the library may choose a different kernel
for the new layout. Without --modes, each run of an investigation is compared with the first run of its batch.
The JSON contains `schema` (1) and `pairs`, a list with one entry per pair of runs. Each entry has `a` and `b` (run,
mode, step, graphs, cuts), `answers`, `counts`, `pairs` (with `graph` and `node` of each place), `casts` and
`post_changed`.
Exit codes: 0 compared, 2 wrong usage or no graphs recorded, 3 a file cannot be read.
"""


@click.command(epilog=EXAMPLES, help="Show where the graphs of two runs differ, the most important difference first.")
@click.argument("paths", nargs=-1, metavar="[RUN_A RUN_B | INVESTIGATION]")
@click.option("--modes", metavar="A,B", help="Compare these two modes of the investigation.")
@click.option(
    "--step", type=click.IntRange(min=0), help="The step to compare (default: the first step that both have)."
)
@click.option("--phase", metavar="PHASE", help=f"Compare only this phase: {', '.join(PHASES)}.")
@click.option("--all", "everything", is_flag=True, help="Also show equal ops, and ops that change no values.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH",
    help="Write a page that shows both graphs side by side.",
)  # fmt: skip
@out_option
@force_option
@json_option
def command(
    paths: tuple[str, ...],
    modes: str | None,
    step: int | None,
    phase: str | None,
    everything: bool,
    html: Path | None,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    pairs = graphs_to_compare(paths, modes, out)
    if html is not None:  # checked before the graphs are compared, which may take minutes
        if len(pairs) > 1:
            raise UsageError(f"--html shows two runs, but {len(pairs) + 1} are selected: choose two with --modes")
        if is_there(html) and not force:
            raise CollisionError(html, "choose another file, or replace it with --force")
    diffs = [compare_graphs(a, b, step=step, phase=phase) for a, b in pairs]
    if json_path:
        write_json(json_path, {"schema": SCHEMA, "pairs": [diff.to_json() for diff in diffs]}, force=force)
    screen = console(stderr=json_path == "-")
    if json_path != "-":
        for number, (diff, pair) in enumerate(zip(diffs, pairs, strict=True)):
            if number:
                screen.print()
            show(screen, diff, pair, everything=everything)
    if html is not None:
        _write_page(html, diffs[0], pairs[0])
        screen.print(f"Wrote {html}", soft_wrap=True)
    return 0


def _write_page(path: Path, diff: Diff, pair: Pair) -> None:
    # imported here because only --html needs it
    from ...report.pair_graphs import page_of_difference

    write_text(path, page_of_difference(diff, *pair))


def show(out: Console, diff: Diff, pair: Pair, *, everything: bool) -> None:
    """Print the answers, then the facts behind them: the graphs, the count of each op, and the differing groups."""
    labels = (diff.a.mode, diff.b.mode)
    if diff.a.mode == diff.b.mode:
        labels = (f"A {Path(diff.a.run).name}", f"B {Path(diff.b.run).name}")
    for answer in diff.answers:
        out.print(answer, soft_wrap=True)
    out.print()
    rows = table("run", ">step", ">graphs in it", ">nodes", ">kernels", "cut by")
    for label, side in zip(labels, (diff.a, diff.b), strict=True):
        cuts = ", ".join(f"{reason} ({count:,})" for reason, count in side.cuts.items())
        graphs = f"{side.graphs_in_step:,}" if side.compiles else "op by op"
        kernels = f"{side.kernels:,}" if side.post_graphs else "-"
        rows.add_row(label, f"{side.step:,}", graphs, f"{side.nodes:,}", kernels, cuts or "-")
    out.print(rows)
    counts = count_rows(diff, everything=everything)
    if counts:
        out.print()
        rows = table("phase", "op", *(f">{label}" for label in labels))
        for count in counts:
            rows.add_row(count.phase, count.op, f"{count.a:,}", f"{count.b:,}")
        out.print(rows)
    correspondences = pair_rows(diff, *pair, everything=everything)
    if correspondences:
        out.print()
        rows = table("what", "phase", ">times", *labels, "in")
        for row in correspondences:
            sides = (", ".join(row.a) or "-", ", ".join(row.b) or "-")
            location, more = ", ".join(row.modules[:MODULES]), len(row.modules) - MODULES
            location = f"{location} and {more} more" if more > 0 else location
            rows.add_row(row.what, row.phase, f"{row.count:,}", *sides, location)
        out.print(rows)
    if diff.casts:
        out.print()
        rows = table("cast", "phase", "only in", ">times")
        for cast in diff.casts:
            location = labels[cast.side == "b"]
            rows.add_row(f"{cast.from_dtype} to {cast.to_dtype}", cast.phase, location, f"{cast.count:,}")
        out.print(rows)
