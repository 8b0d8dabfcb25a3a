"""Batches whose investigations are a script of the shell: what is executed, what is not, and what begins anew."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import numdrift
from numdrift.harness.api import batching
from numdrift.harness.errors import UsageError
from numdrift.harness.records.results.findings import Findings, PairFindings

INVESTIGATE = """#!/bin/sh
# -m numdrift investigate --name NAME --out FOLDER ...
echo executed >> {folder}/$5
case "$*" in *" -- "*wrong*) echo "numdrift: wrong argument"; exit 2 ;; esac
touch "$7/$5/recorded"
cp {folder}/investigation.json "$7/$5"
"""
TWO = '[[experiments]]\nscript = "train.py"\narguments = { a = "", b = "wrong" }\nprocessors = 1\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of two tasks, the second of which fails, and the script that takes the place of Python."""
    Findings("train.py", "cpu", {}, [PairFindings("cpu", "compile", "rounding", ["as it should"], score=0.5)]).write(
        tmp_path
    )
    (tmp_path / "investigate").write_text(INVESTIGATE.format(folder=tmp_path))
    (tmp_path / "investigate").chmod(0o755)
    (tmp_path / "train.py").write_text("first = True\n")
    (tmp_path / "e.toml").write_text(TWO)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batching, "sys", SimpleNamespace(executable=str(tmp_path / "investigate")))
    return tmp_path


def executions(folder: Path) -> dict[str, int]:
    """How often each task was executed."""
    paths = (folder / f"train-{name}" for name in "ab")
    return {path.name: len(path.read_text().splitlines()) if path.exists() else 0 for path in paths}


def test_what_is_done_is_not_done_again_and_what_failed_is(folder: Path) -> None:
    first, second = numdrift.batch("e.toml"), numdrift.batch("e.toml")

    assert [(row.task, row.verdict, row.text) for row in first.rows if row.verdict == "failed"] == [
        ("train-b", "failed", "wrong argument")
    ]
    assert first.rows[0].verdict == "rounding" and first.exit_code == second.exit_code == 3
    assert (first.reused, second.reused) == (0, 1)
    assert executions(folder) == {"train-a": 1, "train-b": 2}


def test_a_task_that_failed_begins_anew_once_it_is_corrected(folder: Path) -> None:
    numdrift.batch("e.toml")
    left = folder / "runs/e/main/train-b/left"
    left.touch()
    (folder / "e.toml").write_text(TWO.replace("wrong", "right"))

    found = numdrift.batch("e.toml")

    assert [row.verdict for row in found.rows] == ["rounding", "rounding"] and found.exit_code == 0
    assert executions(folder) == {"train-a": 1, "train-b": 2} and not left.exists()


def test_what_is_done_is_replaced_only_by_force(folder: Path) -> None:
    numdrift.batch("e.toml")
    (folder / "train.py").write_text("first = False\n")

    with pytest.raises(
        UsageError, match=r"train-a was done with another version of train\.py, .*--suffix, or .*--force"
    ):
        numdrift.batch("e.toml")
    assert executions(folder) == {"train-a": 1, "train-b": 1}
    beside, replaced = numdrift.batch("e.toml", suffix="new"), numdrift.batch("e.toml", force=True)

    assert executions(folder) == {"train-a": 3, "train-b": 3}
    assert numdrift.compare_batches("runs/e/main", "runs/e/new").answer == "2 rows in both batches: nothing changed"
    assert beside.folder == "runs/e/new" and replaced.reused == 0


def test_an_engine_that_is_refused_removes_nothing(folder: Path) -> None:
    numdrift.batch("e.toml")
    with pytest.raises(UsageError, match="has no option"):
        numdrift.batch("e.toml", force=True, engine_options={"device": "0"})
    assert (folder / "runs/e/main/train-a/recorded").exists()


def test_a_batch_can_be_moved(folder: Path) -> None:
    numdrift.batch("e.toml", out="before")
    (folder / "before").rename(folder / "after")
    assert numdrift.batch("e.toml", out="after").reused == 1


def test_the_file_is_the_same_from_any_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numdrift.batch("e.toml")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert numdrift.batch("../e.toml", out="../runs").reused == 1
