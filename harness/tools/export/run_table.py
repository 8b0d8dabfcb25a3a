"""All steps of all runs as one tidy table, one row per step, in CSV and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .exported_run import Export, ExportedRun, logged_name, loss_name, turn_of
from .optional_library import optional_library

TEXTS = ("run", "mode", "suffix")
NUMBERS = ("rank", "step", "optimizer")
SCHEMA = 1

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class RunTable:
    """The rows of the runs.

    The columns are run, mode, suffix, rank, step, optimizer (1 if there is only one) and seconds; then `loss`, and
    `loss_1` and so on if a step has several losses; then the logged values by name. A value that a step lacks is None,
    not NaN.
    """

    runs: Sequence[ExportedRun]

    @property
    def columns(self) -> list[str]:
        steps = [step for run in self.runs for step in run.steps]
        losses = [loss_name(place) for place in range(max((len(step.losses) for step in steps), default=0))]
        logged = dict.fromkeys(logged_name(name) for step in steps for name in step.logged)
        return [*TEXTS, *NUMBERS, "seconds", *losses, *logged]

    def rows(self) -> Iterator[dict[str, Cell]]:
        """Yield each step's cells by column; columns without a value are left out."""
        for run in self.runs:
            for step in run.steps:
                row: dict[str, Cell] = {"run": run.name, "mode": run.mode, "suffix": run.suffix, "rank": run.rank}
                row |= {"step": step.step, "optimizer": turn_of(step), "seconds": step.seconds}
                row |= {loss_name(place): loss for place, loss in enumerate(step.losses)}
                yield row | {logged_name(name): value for name, value in step.logged.items()}


def write_csv(export: Export) -> None:
    """Write the table as text.

    A number's text preserves its 64 bits. NaN and infinities are `nan`, `inf` and `-inf`; a value that a step lacks is
    empty. Raises OSError.
    """
    table = RunTable(export.runs)
    with export.path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, table.columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table.rows())


def write_parquet(export: Export) -> None:
    """Write the table with pyarrow.

    Losses and logged values are float64, including NaN and infinities; a value that a step lacks is null. The file's
    metadata has the facts of each run under `numdrift`, as JSON. Raises OSError and ExtraNotFound.
    """
    arrow = optional_library("pyarrow", "parquet")
    parquet = optional_library("pyarrow.parquet", "parquet")
    table = RunTable(export.runs)
    types = dict.fromkeys(TEXTS, arrow.string()) | dict.fromkeys(NUMBERS, arrow.int64())
    runs = {run.name: dict(run.facts) for run in export.runs}
    facts = {"schema": SCHEMA, "investigation": export.investigation, "runs": runs}
    form = arrow.schema(
        [(name, types.get(name, arrow.float64())) for name in table.columns],
        metadata={"numdrift": json.dumps(facts)},
    )
    parquet.write_table(arrow.Table.from_pylist(list(table.rows()), form), export.path)
