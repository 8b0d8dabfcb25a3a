"""Folders of batches: their rows, their driver, and what has changed between two of them."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.batches.batch_folder import BATCH, PlannedBatch, driven, table_of
from numdrift.harness.batches.table_export import write_table
from numdrift.harness.engines.engine_task import END, TaskEnd
from numdrift.harness.errors import JournalError, RunNotFound, UsageError
from numdrift.harness.records.codec import json_text
from numdrift.harness.records.results.findings import Findings, PairFindings
from numdrift.harness.records.results.task_table import PlannedTask, TaskRow, TaskTable, compared_tables

from ..report.outcomes import cause


def planned(name: str, **labels: str) -> PlannedTask:
    return PlannedTask(name, "exp", "train.py", ["cpu", "compile"], ["cpu", "compile"], ["--epochs", "1"], labels)


def ended(folder: Path, code: int, message: str = "", pair: PairFindings | None = None) -> None:
    """Write the files of a task that has ended, with what its investigation found."""
    folder.mkdir(parents=True)
    (folder / END).write_text(json_text(TaskEnd(code, 2.5, 2, "node7", message)))
    if pair is not None:
        Findings("train.py", pair.a, {}, [pair]).write(folder)


def test_each_task_has_rows_however_it_ended(tmp_path: Path) -> None:
    culprits = [
        cause(op=op, status="suspect" if op == "aten.sum" else "culprit") for op in ("aten.mm", "aten.sum", "aten.mm")
    ]
    found = PairFindings(
        "cpu", "compile", "beyond-rounding", ["it differs"], score=70.5, threshold=16.0, first_significant_step=3, culprits=culprits
    )  # fmt: skip
    ended(tmp_path / "found", 1, pair=found)
    ended(tmp_path / "crashed", 3, "numdrift: the script failed")
    ended(tmp_path / "killed", -signal.SIGKILL, "last words")
    PlannedBatch("e.toml", [planned(name) for name in ("found", "crashed", "killed", "waits")]).write(tmp_path)

    table = table_of(tmp_path)

    assert [(row.task, row.word, row.exit_code) for row in table.rows] == [
        ("found", "beyond-rounding", 1), ("crashed", "failed", 3), ("killed", "failed", 3), ("waits", "not-run", 3)
    ]  # fmt: skip
    row = table.rows[0]
    assert (row.z, row.threshold, row.step, row.causes) == (70.5, 16.0, 3, ["aten.mm"])
    assert (row.seconds, row.attempts, row.host, row.folder) == (2.5, 2, "node7", str(tmp_path / "found"))
    assert [row.text for row in table.rows[1:]] == [
        "the script failed", "its process was ended by SIGKILL, in attempt 2: last words", "the task has not ended"
    ]  # fmt: skip
    assert table.answer == "4 tasks: 2 failed, 1 beyond-rounding, 1 not-run" and table.exit_code == 1


def test_a_folder_that_is_no_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="is not a batch; name the TOML file"):
        table_of(tmp_path)
    (tmp_path / BATCH).write_text("{")
    with pytest.raises(JournalError, match=BATCH):
        table_of(tmp_path)


def test_a_second_driver_is_refused_and_a_failed_start_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "experiments/main"
    with driven(folder), pytest.raises(UsageError, match=r"is already driven by process [0-9]+ on "), driven(folder):
        pass
    assert not (tmp_path / "experiments").exists()
    with driven(folder):
        PlannedBatch("e.toml", []).write(folder)
    with driven(folder):
        pass
    assert (folder / BATCH).exists()


ROW = TaskRow("a", "exp", "train.py", "cpu", "compile", "rounding", z=0.51234, causes=["aten.mm"])


def table(*rows: TaskRow, folder: str = "b") -> TaskTable:
    return TaskTable(folder, "e.toml", rows)


def test_what_has_changed_between_two_batches(tmp_path: Path) -> None:
    before = table(*(replace(ROW, task=name) for name in ("same", "verdict", "cause", "score", "gone")), folder="old")
    after = table(
        replace(ROW, task="same", z=0.51231, seconds=9.0, text="other words"),
        replace(ROW, task="verdict", verdict="beyond-rounding", z=99.0),
        replace(ROW, task="cause", causes=["aten.sum"]),
        replace(ROW, task="score", z=0.6),
        replace(ROW, task="new", z=None),
    )

    found = compared_tables(before, after)

    assert {change.task: (list(change.changed), change.matters) for change in found.changes} == {
        "verdict": (["verdict", "score"], True),
        "cause": (["causes"], True),
        "score": (["score"], False),
        "gone": (["only in one"], True),
        "new": (["only in one"], True),
    }
    assert found.answer == (
        "4 rows in both batches: 1 verdict, 1 cause, 2 scores, 2 rows only in one batch changed"
    ) and found.exit_code == 1  # fmt: skip
    assert json.loads(json_text(found.to_json()))["changes"][0]["before"]["verdict"] == "rounding"


def test_scores_alone_are_no_reason_to_fail() -> None:
    assert compared_tables(table(ROW), table(replace(ROW, z=3.0))).exit_code == 0
    same = compared_tables(table(ROW), table(ROW))
    assert (same.answer, same.exit_code) == ("1 row in both batches: nothing changed", 0)


def test_the_rows_are_read_from_parquet_as_they_are(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = (
        replace(ROW, labels={"seeds": "seed1"}, arguments=["--a", "1"], step=4),
        replace(ROW, mode="lazy", z=float("inf"), verdict=None, causes=[], labels={"kernels": "bf16"}),
        replace(ROW, mode="other", z=None),
    )
    write_table(table(*rows, folder="runs/b/main"), tmp_path / "t.parquet")

    read = parquet.read_table(tmp_path / "t.parquet")

    assert json.loads(read.schema.metadata[b"numdrift"]) == {"schema": 1, "folder": "runs/b/main", "file": "e.toml"}
    first, second, third = read.to_pylist()
    assert (first["z"], second["z"], third["z"]) == (0.51234, float("inf"), None)
    assert (first["causes"], second["causes"], first["arguments"], first["step"]) == (["aten.mm"], [], ["--a", "1"], 4)
    assert (first["axis_seeds"], first["axis_kernels"], second["axis_kernels"]) == ("seed1", None, "bf16")
    assert second["verdict"] is None and list(tmp_path.iterdir()) == [tmp_path / "t.parquet"]


def test_an_empty_table_is_written_too(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_table(table(), tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet").num_rows == 0
