"""`numdrift runs export`: which runs it takes, what it replaces, and what it says where something is missing."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import numdrift
from numdrift.harness.cli.program import program
from numdrift.harness.errors import CollisionError, ExtraNotFound, NumdriftError, RunNotFound, UsageError
from numdrift.harness.tools.export.export_format import MARK

LIBRARIES = {"parquet": "pyarrow", "tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An investigation with two batches: cpu and again of the first, cpu of the second."""
    folder = tmp_path_factory.mktemp("runs")
    for mode, suffix in (("cpu", "first"), ("again=cpu", "first"), ("cpu", "second")):
        with numdrift.record(mode, folder, "study", suffix=suffix):
            weight = torch.ones(2, requires_grad=True)
            optimizer = torch.optim.SGD([weight], lr=0.1)
            for _ in range(2):
                weight.square().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    return folder


def export(out: Path, *words: str | Path) -> Result:
    return CliRunner().invoke(program, ["runs", "export", "--out", str(out), *map(str, words)], standalone_mode=False)


def refused(result: Result) -> NumdriftError:
    assert isinstance(result.exception, UsageError) and result.exception.exit_code == 2
    assert "\n" not in str(result.exception)
    return result.exception


def runs_of(path: Path) -> list[str]:
    with path.open(newline="") as file:
        return list(dict.fromkeys(row["run"] for row in csv.DictReader(file)))


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ([], ["cpu_first", "again_first", "cpu_second"]),
        (["study"], ["cpu_first", "again_first", "cpu_second"]),
        (["--suffix", "first"], ["cpu_first", "again_first"]),
        (["study", "--mode", "cpu"], ["cpu_first", "cpu_second"]),
        (["--suffix", "first", "--mode", "again", "--mode", "cpu"], ["cpu_first", "again_first"]),
        (["--mode", "cpu_second"], ["cpu_second"]),
    ],
)
def test_the_runs_that_are_meant_are_exported(out: Path, tmp_path: Path, words: list[str], runs: list[str]) -> None:
    table = tmp_path / "made" / "steps.csv"
    result = export(out, *words, "--to", "csv", "--output", table)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    assert result.exception is None and result.output == f"Wrote {table} ({count}, {2 * len(runs)} steps)\n"
    assert runs_of(table) == runs


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stdy"], "did you mean 'study'"),
        (["--suffix", "third"], "third"),
        (["study", "--suffix", "third"], "known: first, second"),
        (["--mode", "lazy"], "has no run of mode 'lazy': known: again, cpu"),
        (["--suffix", "second", "--mode", "again"], "has no run of mode 'again': known: cpu"),
    ],
)
def test_runs_that_are_not_there_are_named(out: Path, tmp_path: Path, words: list[str], said: str) -> None:
    error = refused(export(out, *words, "--to", "csv", "--output", tmp_path / "steps.csv"))
    assert isinstance(error, RunNotFound) and said in str(error)
    assert not list(tmp_path.iterdir())


def test_a_run_without_steps_is_refused(tmp_path: Path) -> None:
    with numdrift.record("cpu", tmp_path, "empty"):
        pass
    error = refused(export(tmp_path, "empty", "--to", "csv", "--output", tmp_path / "steps.csv"))
    assert "no step of cpu was recorded" in str(error) and not (tmp_path / "steps.csv").exists()


def test_a_file_is_replaced_by_force_only(out: Path, tmp_path: Path) -> None:
    # given
    table = tmp_path / "steps.csv"
    table.write_text("mine")
    words = ("--mode", "again", "--to", "csv", "--output", table)
    # when
    error = refused(export(out, *words))
    # then
    assert isinstance(error, CollisionError) and "--force" in str(error) and table.read_text() == "mine"
    assert export(out, *words, "--force").exception is None
    assert runs_of(table) == ["again_first"]
    assert [path.name for path in tmp_path.iterdir()] == ["steps.csv"]


def test_a_folder_of_something_else_is_replaced_by_nothing(out: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    # given a folder that no export has written, and one that has
    mine, logs = tmp_path / "mine", tmp_path / "logs"
    mine.mkdir()
    (mine / "thesis.txt").write_text("mine")
    words = ("--to", "tensorboard", "--output")
    assert export(out, *words, logs).exception is None
    # then
    for folder in (mine, logs):
        assert isinstance(refused(export(out, *words, folder)), CollisionError)
    error = refused(export(out, *words, mine, "--force"))
    assert "it does not come from an export" in str(error) and (mine / "thesis.txt").read_text() == "mine"
    assert "it is a folder" in str(refused(export(out, "--to", "csv", "--output", logs, "--force")))
    assert "it is a file" in str(refused(export(out, *words, mine / "thesis.txt", "--force")))
    assert "it is not a regular file" in str(refused(export(out, "--to", "csv", "--output", "/dev/null", "--force")))
    # and the export is replaced whole
    assert export(out, "--mode", "again", *words, logs, "--force").exception is None
    assert {path.name for path in logs.iterdir()} == {MARK, "again_first"}
    assert json.loads((logs / MARK).read_text()) == {
        "schema": 1, "format": "tensorboard", "investigation": "study", "runs": ["again_first"],
    }  # fmt: skip


@pytest.mark.parametrize("to", LIBRARIES)
def test_a_missing_library_is_said_with_its_extra(
    out: Path, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == LIBRARIES[to]]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, LIBRARIES[to], None)
    error = refused(export(out, "--to", to, "--output", tmp_path / "made"))
    assert isinstance(error, ExtraNotFound) and str(error).startswith(f"{LIBRARIES[to]} cannot be imported (")
    assert str(error).endswith(f": pip install 'numdrift[{to}]'")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["/proc/none/steps.csv", "/etc/hostname/steps.csv", f"/tmp/{'x' * 300}"])
def test_a_place_that_cannot_be_written_is_named(out: Path, place: str) -> None:
    error = refused(export(out, "--to", "csv", "--output", place))
    assert str(error).startswith(f"{place} cannot be written: ")


def test_a_name_that_a_library_does_not_take_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    with numdrift.record("cpu", tmp_path / "runs", "named"):
        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        weight.square().sum().backward()
        optimizer.step()
        numdrift.log(**{"50%": 1.0})
    error = refused(export(tmp_path / "runs", "named", "--to", "mlflow", "--output", tmp_path / "store"))
    assert "MLflow refuses named" in str(error) and "logged/50%" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_the_command_loads_no_library_before_it_needs_one() -> None:
    code = (
        f"import sys, numdrift.harness.cli.runs; print([m for m in {sorted(LIBRARIES.values())} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize(("to", "variable"), [("mlflow", "MLFLOW_RUN_ID"), ("wandb", "WANDB_RUN_ID")])
def test_what_a_user_has_set_for_trainings_stays_and_is_not_heeded(
    out: Path, tmp_path: Path, to: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(to)
    monkeypatch.setenv(variable, "mine")
    before = dict(os.environ)
    result = export(out, "--suffix", "first", "--to", to, "--output", tmp_path / "made")
    assert result.exception is None and "(2 runs, 4 steps)\nOpen it with: " in result.output
    assert dict(os.environ) == before
    assert not [path for path in tmp_path.rglob("*") if "mine" in path.name]
    pattern = "*/*/metrics/loss" if to == "mlflow" else "wandb/offline-run-*/*.wandb"
    assert len(list((tmp_path / "made").glob(pattern))) == 2
