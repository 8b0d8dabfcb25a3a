"""`numdrift graph diff`: in what the graphs of two runs differ."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console

from ...errors import CollisionError, GraphsNotFound, UsageError
from ...graphs.culprit_marks import Mark, marks_for
from ...graphs.diff.difference_record import SCHEMA, Diff, Side
from ...graphs.diff.graph_comparison import PairRow, compare_graphs, count_rows, pair_rows
from ...graphs.run_graphs import RunGraphs, graphs_of
from ...records.graph_record import PHASES
from ...runs.recorded_run import RecordedRun, is_there, load_run
from ...runs.run_layout import MANIFEST
from ..command_options import force_option, json_option, out_option
from ..output import console, table, write_json
from .selection import recorded_runs

Pair = tuple[RunGraphs, RunGraphs]

MODULES = 3
"""Modules that are named in one row; more are counted."""

EXAMPLES = """\b
Examples:
  numdrift graph diff runs/train/lazy runs/train/compile
  numdrift graph diff runs/train --modes lazy,compile --phase backward
  numdrift graph diff runs/train
  numdrift graph diff runs/train/lazy runs/train/compile --html diff.html

\b
What is compared are the ops of one step before the mode's compiler, as often as they were executed. An op counts
as the same under all its spellings: add_, _foreach_add_ and add; t, t_copy and permute. What changes no number
(views, fills, detach, clone) is left out of the tables without --all. Of an investigation without --modes, each
run is compared with its batch's first.
The JSON holds `schema` (1) and `pairs`, a list of differences: `a` and `b` (run, mode, step, graphs, cuts),
`answers`, `counts`, `pairs` (with `graph` and `node` of each place), `casts` and `post_changed`.
Exit codes: 0 compared, 2 wrong usage or no graphs recorded, 3 a file cannot be read.
"""


@click.command(epilog=EXAMPLES, help="Say in what the graphs of two runs differ, the most important difference first.")
@click.argument("paths", nargs=-1, metavar="[RUN_A RUN_B | INVESTIGATION]")
@click.option("--modes", metavar="A,B", help="Two modes of the investigation.")
@click.option("--step", type=click.IntRange(min=0), help="The step (default: the first that both have).")
@click.option("--phase", metavar="PHASE", help=f"Only this phase: {', '.join(PHASES)}.")
@click.option("--all", "everything", is_flag=True, help="Also what does not differ, and what changes no number.")
@click.option(
    "--html", type=click.Path(path_type=Path, dir_okay=False), metavar="PATH",
    help="Write both graphs side by side as a page.",
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
    pairs = _pairs(paths, modes, out)
    if html is not None:
        _refuse_page(html, len(pairs), force)
    found = [compare_graphs(a, b, step=step, phase=phase) for a, b in pairs]
    if json_path:
        write_json(json_path, {"schema": SCHEMA, "pairs": [one.to_json() for one in found]}, force=force)
    screen = console(stderr=json_path == "-")
    if json_path != "-":
        for number, (diff, pair) in enumerate(zip(found, pairs, strict=True)):
            if number:
                screen.print()
            show(screen, diff, pair, everything=everything)
    if html is not None:
        _write_page(html, found[0], pairs[0])
        screen.print(f"Wrote {html}", soft_wrap=True)
    return 0


def _pairs(paths: tuple[str, ...], modes: str | None, out: Path) -> list[Pair]:
    if len(paths) > 2:
        raise UsageError("graph diff takes two runs or one investigation")
    if len(paths) == 2:
        if modes is not None:
            raise UsageError("--modes belongs to an investigation, not to two runs")
        return [(graphs_of(load_run(paths[0])), graphs_of(load_run(paths[1])))]
    named = paths[0] if paths else None
    if named is not None and is_there(Path(named) / MANIFEST):
        raise UsageError(f"{named} is one run; give a second one, or the investigation {Path(named).parent}")
    if modes is not None:
        return [_of_modes(named, modes, out)]
    runs = recorded_runs(named, out)
    having = _with_graphs(runs)
    batches: dict[str, list[RunGraphs]] = {}
    for one in having:
        batches.setdefault(one.run.manifest.suffix, []).append(one)
    pairs = [(of[0], other) for of in batches.values() for other in of[1:]]
    pairs = pairs or [(having[0], other) for other in having[1:]]
    if pairs:
        return pairs
    for run in runs:
        graphs_of(run)
    raise UsageError(f"{runs[0].path.parent} holds one run, which has nothing to be compared with; run another mode")


def _of_modes(named: str | None, modes: str, out: Path) -> Pair:
    chosen = [mode.strip() for mode in modes.split(",")]
    if len(chosen) != 2 or not all(chosen):
        raise UsageError(f"--modes takes two modes, as in lazy,compile, not {modes!r}")
    sides = [recorded_runs(named, out, mode) for mode in chosen]
    batches = [{run.manifest.suffix: run for run in runs} for runs in sides]
    common = [suffix for suffix in batches[0] if suffix in batches[1]]
    if common:
        return graphs_of(batches[0][common[-1]]), graphs_of(batches[1][common[-1]])
    return graphs_of(sides[0][-1]), graphs_of(sides[1][-1])


def _with_graphs(runs: list[RecordedRun]) -> list[RunGraphs]:
    found = []
    for run in runs:
        with suppress(GraphsNotFound):
            found.append(graphs_of(run))
    return found


def _refuse_page(path: Path, pairs: int, force: bool) -> None:
    if pairs > 1:
        raise UsageError(f"--html shows two runs, and {pairs + 1} are meant: choose two with --modes")
    if is_there(path) and not force:
        raise CollisionError(path, "choose another file, or replace it with --force")


def _marks(side: Side, graphs: RunGraphs) -> dict[str, Mapping[str, Mark]]:
    """What the investigation found guilty in the graphs of one side."""
    names = dict.fromkeys((*side.graphs, *side.post_graphs))
    return {name: marks_for(graphs.run, graphs.graph(name)) for name in names}


def _write_page(path: Path, diff: Diff, pair: Pair) -> None:
    from ...graphs.page.diff_page import write_page

    text = write_page(diff, *pair, _marks(diff.a, pair[0]), _marks(diff.b, pair[1]))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def show(out: Console, diff: Diff, pair: Pair, *, everything: bool) -> None:
    """Print the answers, then what they were found from."""
    for answer in diff.answers:
        out.print(answer, soft_wrap=True)
    labels = _labels(diff)
    _show_graphs(out, diff, labels)
    _show_counts(out, diff, labels, everything)
    _show_pairs(out, pair_rows(diff, *pair, everything=everything), labels)
    if diff.casts:
        out.print()
        rows = table("cast", "phase", "only in", ">times")
        for one in diff.casts:
            where = labels[one.side == "b"]
            rows.add_row(f"{one.from_dtype} to {one.to_dtype}", one.phase, where, f"{one.count:,}")
        out.print(rows)


def _labels(diff: Diff) -> tuple[str, str]:
    if diff.a.mode != diff.b.mode:
        return diff.a.mode, diff.b.mode
    return f"A {Path(diff.a.run).name}", f"B {Path(diff.b.run).name}"


def _show_graphs(out: Console, diff: Diff, labels: tuple[str, str]) -> None:
    out.print()
    rows = table("run", ">step", ">graphs in it", ">nodes", ">kernels", "cut by")
    for label, side in zip(labels, (diff.a, diff.b), strict=True):
        cuts = ", ".join(f"{reason} ({count:,})" for reason, count in side.cuts.items())
        graphs = f"{side.graphs_in_step:,}" if side.compiles else "op by op"
        kernels = f"{side.kernels:,}" if side.post_graphs else "-"
        rows.add_row(label, f"{side.step:,}", graphs, f"{side.nodes:,}", kernels, cuts or "-")
    out.print(rows)


def _show_counts(out: Console, diff: Diff, labels: tuple[str, str], everything: bool) -> None:
    counts = count_rows(diff, everything=everything)
    if not counts:
        return
    out.print()
    rows = table("phase", "op", *(f">{label}" for label in labels))
    for one in counts:
        rows.add_row(one.phase, one.op, f"{one.a:,}", f"{one.b:,}")
    out.print(rows)


def _show_pairs(out: Console, found: list[PairRow], labels: tuple[str, str]) -> None:
    if not found:
        return
    out.print()
    rows = table("what", "phase", ">times", *labels, "in")
    for one in found:
        where = ", ".join(one.modules[:MODULES])
        more = len(one.modules) - MODULES
        rows.add_row(
            one.what,
            one.phase,
            f"{one.count:,}",
            ", ".join(one.a) or "-",
            ", ".join(one.b) or "-",
            f"{where} and {more} more" if more > 0 else where,
        )
    out.print(rows)
