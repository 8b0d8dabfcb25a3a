"""The rows of a batch as one tidy table in Parquet."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import UsageError
from ..records.codec import plain
from ..records.results.task_table import SCHEMA, TaskTable
from ..tools.export.optional_library import optional_library


def write_table(found: TaskTable, path: Path) -> None:
    """Write a row for each mode of each task, with pyarrow.

    The columns are the fields of `TaskRow`. Scores are float64, null where there is none; causes and arguments are
    lists of texts; each axis with several values is a column `axis_NAME` with the label of the row's value. The file's
    metadata has the batch's folder and file under `numdrift`, as JSON. Raises UsageError and ExtraNotFound.
    """
    arrow = optional_library("pyarrow", "parquet")
    parquet = optional_library("pyarrow.parquet", "parquet")
    axes = list(dict.fromkeys(axis for row in found.rows for axis in row.labels))
    texts, numbers = arrow.list_(arrow.string()), arrow.float64()
    kinds = {"z": numbers, "threshold": numbers, "seconds": numbers, "step": arrow.int64(), "attempts": arrow.int64()}
    kinds |= {"causes": texts, "arguments": texts}
    rows = []
    for row in found.rows:
        cells = {**plain(row), "z": row.z, "threshold": row.threshold}  # not the text of an infinity
        labels = cells.pop("labels")
        rows.append(cells | {f"axis_{axis}": labels.get(axis) for axis in axes})
    names = [*(plain(found.rows[0]) if found.rows else {})]
    columns = [name for name in names if name != "labels"] + [f"axis_{axis}" for axis in axes]
    facts = {"schema": SCHEMA, "folder": found.folder, "file": found.file}
    form = arrow.schema(
        [(name, kinds.get(name, arrow.string())) for name in columns], metadata={"numdrift": json.dumps(facts)}
    )
    written = path.with_name(f".{path.name}.part")
    try:
        parquet.write_table(arrow.Table.from_pylist(rows, form), written)
        written.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
