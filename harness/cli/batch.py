"""`numdrift batch`: investigates all experiments of a file, and prints a table of the verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from ..api.batching import SUFFIX, ExperimentsRequest, batch_against, batched
from ..batches.batch_folder import BATCH, table_of
from ..batches.table_export import write_table
from ..engines.engine import LOCAL, engine_words
from ..errors import UsageError
from ..records.results.task_table import RowChange, TableComparison, TaskRow, TaskTable, compared_tables, counted
from . import command_options as options
from .investigate import CommandLineProgress
from .output import INTERRUPTED, console, number, require_new, table, write_json

ROWS_SHOWN = 40
"""The number of rows of a table; further rows are only counted."""

WIDTH = 80
"""The number of characters of an answer in a table."""

EXAMPLES = """\b
Examples:
  numdrift batch experiments.toml
  numdrift batch experiments.toml --jobs 4 --parquet table.parquet
  numdrift batch experiments.toml --suffix new --against main
  numdrift batch runs/experiments/main --json -
  numdrift batch experiments.toml --engine submitit --engine-option slurm_partition=gpu
  numdrift batch experiments.toml --engine ray --engine-option address=auto

\b
experiments.toml:
  [[experiments]]
  script = "train.py"
  modes = "cpu,compile"
  arguments = ["--epochs 1", "--epochs 2"]

\b
Each combination of an experiment's values is a task: an investigation with a folder of its own. Tasks that are done
are not done again, so the same command goes on after an interruption.
Exit codes: 0 no row differs beyond rounding, 1 a row does or needs attention, 2 wrong usage, 3 a task failed. With
--against: 0 no verdict and no cause has changed, 1 some have.
"""


@click.command(
    epilog=EXAMPLES,
    help="Investigate all experiments of TARGET, a TOML file. TARGET may also be the folder of a batch; then its table "
    "is shown again.",
)
@click.argument("target")
@click.option("--name", metavar="NAME", help="The name of the batch (default: the file's name).")
@click.option("--suffix", default=SUFFIX, show_default=True, metavar="TAG", help="The tag of this batch.")
@click.option("--against", metavar="BATCH", help="Show what has changed since another batch: its tag, or its folder.")
@options.engine_option
@options.engine_settings_option
@options.shared_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Maximum number of tasks at the same time (default: as many as there is room for).",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How often a task whose process was killed is executed again.",
)
@click.option("--parquet", "parquet", metavar="PATH", help="Write the rows as Parquet.")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    target: str,
    name: str | None,
    suffix: str,
    against: str | None,
    engine: str,
    engine_options: tuple[str, ...],
    shared: str,
    jobs: int | None,
    retries: int,
    parquet: str | None,
    quiet: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    for path in (json_path, parquet):
        require_new(path, force=force)
    request = ExperimentsRequest(
        file=Path(target), name=name, suffix=suffix, out=out, engine=engine, jobs=jobs, retries=retries,
        engine_options=engine_words(engine_options), shared=shared, force=force,
    )  # fmt: skip
    is_folder = Path(target).is_dir()
    if is_folder and (jobs or force or engine_options or shared or engine != LOCAL):
        raise UsageError(f"{target} is a folder, whose table is only shown; name the TOML file to execute tasks")
    folder = Path(target) if is_folder else request.folder
    before = None if against is None else table_of(batch_against(folder, against))
    interrupted = False
    try:
        found = table_of(folder) if is_folder else batched(request, CommandLineProgress(quiet=quiet))
    except KeyboardInterrupt:
        console(stderr=True).print("numdrift: interrupted. The same command goes on from there.", soft_wrap=True)
        if not (folder / BATCH).exists():
            return INTERRUPTED
        found, interrupted = table_of(folder), True
    comparison = None if before is None else compared_tables(before, found)
    if parquet:
        write_table(found, Path(parquet))
    if json_path:
        write_json(json_path, (comparison or found).to_json(), force=force)
    if json_path != "-" and not quiet:
        show_table(console(), found)
        if comparison is not None:
            show_changes(console(), comparison)
    if interrupted:
        return INTERRUPTED
    return found.exit_code if comparison is None else comparison.exit_code


def show_table(out: Console, found: TaskTable) -> None:
    """Print the counts of verdicts, then the rows. If there are many, those that need a person come first."""
    out.print(f"{found.answer}.\n", soft_wrap=True)
    many = len(found.rows) > ROWS_SHOWN
    chosen = sorted(found.rows, key=lambda row: not row.exit_code) if many else found.rows
    rows = table("task", "mode", "verdict", ">z", "causes", "answer")
    for row in chosen[:ROWS_SHOWN]:
        rows.add_row(row.task, row.mode, row.word, number(row.z), causes_of(row), shortened(row.text))
    out.print(rows)
    if many:
        out.print(f"and {counted(len(found.rows) - ROWS_SHOWN, 'more row')}; all are in --json and --parquet")
    reused = f", {counted(found.reused, 'task')} done before" if found.reused else ""
    took = f", {found.seconds:.1f} s" if found.seconds else ""
    out.print(
        f"\n{counted(len(found.rows), 'row')}{reused}{took}; the investigations are in {found.folder}", soft_wrap=True
    )


def show_changes(out: Console, comparison: TableComparison) -> None:
    """Print what has changed since another batch, the changes of verdicts and causes first."""
    out.print(f"\nAgainst {comparison.before}: {comparison.answer}.", soft_wrap=True)
    if not comparison.changes:
        return
    rows = table("task", "mode", "verdict", ">z", "causes")
    chosen = sorted(comparison.changes, key=lambda change: not change.matters)
    for change in chosen[:ROWS_SHOWN]:
        rows.add_row(
            change.task,
            change.mode,
            _from_to(change, [row.word if row else "(no row)" for row in (change.before, change.after)]),
            _from_to(change, [number(row.z) if row else "" for row in (change.before, change.after)]),
            _from_to(change, [causes_of(row) if row else "" for row in (change.before, change.after)]),
        )
    out.print()
    out.print(rows)
    if len(chosen) > ROWS_SHOWN:
        out.print(f"and {counted(len(chosen) - ROWS_SHOWN, 'more row')}; all are in --json")


def _from_to(change: RowChange, texts: Sequence[str]) -> str:
    before, after = (text or "-" for text in texts)
    return before if before == after else f"{before} -> {after}"


def causes_of(row: TaskRow) -> str:
    """Return the first cause of a row, and the number of the others."""
    return ", ".join(row.causes[:1]) + (f" and {len(row.causes) - 1} more" if len(row.causes) > 1 else "")


def shortened(text: str) -> str:
    """Return an answer as it fits into a table."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3].rstrip()}..."
