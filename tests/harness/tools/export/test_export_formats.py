"""Recorded runs in each format, read back with the library of that format: every loss is the one that was recorded."""

from __future__ import annotations

import csv
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import numdrift
from numdrift.harness.api.run_exporting import runs_exported
from numdrift.harness.runs.journal import StepRecord
from numdrift.harness.runs.recorded_run import RecordedRun, runs_in
from numdrift.harness.tools.export.export_format import export_runs
from numdrift.harness.tools.export.exported_run import ExportedRun, exported

STEPS = 6
VALUES = (0.1, 1 / 3, math.nan, math.inf, -math.inf, 1e300)
"""What the script logs: numbers of 64 bits, and those that are none."""


def train(last: float = 1) -> None:
    """A training whose steps have two losses, multiplied by `last` in its last step."""
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, value in enumerate(VALUES):
        loss = model(x).square().mean() * (last if step == STEPS - 1 else 1)
        loss.backward(retain_graph=True)
        (loss * 0.5).backward()
        optimizer.step()
        optimizer.zero_grad()
        numdrift.log(value=value)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedRun]:
    out = tmp_path_factory.mktemp("runs")
    for mode, last in (("cpu", 1), ("again=cpu", math.nan)):
        with numdrift.record(mode, out, "study", suffix="main"):
            train(last)
    recorded = runs_in(out / "study")
    assert [run.path.name for run in recorded] == ["cpu_main", "again_main"]
    assert all(len(step.losses) == 2 for run in recorded for step in run.journal.steps)
    assert [math.isnan(run.journal.losses[-1]) for run in recorded] == [False, True]
    return recorded


@pytest.fixture
def exported_to(runs: list[RecordedRun], tmp_path: Path) -> Callable[[str], Path]:
    def export(to: str) -> Path:
        export_runs("study", [exported(run) for run in runs], to, tmp_path / to, force=False)
        assert [path.name for path in tmp_path.iterdir()] == [to], "nothing is left beside it"
        return tmp_path / to

    return export


def curves(run: RecordedRun, steps: list[StepRecord] | None = None) -> dict[str, list[float]]:
    """The numbers of a run by the name that each has in every format, read from its journal."""
    steps = run.journal.steps if steps is None else steps
    return {
        "loss": [step.losses[0] for step in steps],
        "loss_1": [step.losses[1] for step in steps],
        "logged/value": [step.logged["value"] for step in steps],
        "seconds": [step.seconds for step in steps],
    }


def same(found: dict[str, list[float]], expected: dict[str, list[float]]) -> bool:
    """Whether all are the same to the bit, and NaN where they are NaN."""
    return set(found) == set(expected) and all(
        np.array_equal(np.array(found[name]), np.array(values), equal_nan=True) for name, values in expected.items()
    )


def test_what_was_logged_is_what_the_export_is_tested_with(runs: list[RecordedRun]) -> None:
    assert all(same({"logged/value": curves(run)["logged/value"]}, {"logged/value": list(VALUES)}) for run in runs)


def test_csv_gives_every_number_back(runs: list[RecordedRun], exported_to: Callable[[str], Path]) -> None:
    # when
    path = exported_to("csv")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    frame = pd.read_csv(path)
    # then
    columns = "run mode suffix rank step optimizer seconds loss loss_1 logged/value"
    assert list(rows[0]) == list(frame.columns) == columns.split()
    for run in runs:
        own = [row for row in rows if row["run"] == run.path.name]
        assert [(row["mode"], row["suffix"]) for row in own] == [(run.manifest.mode, "main")] * STEPS
        assert [(row["step"], row["rank"], row["optimizer"]) for row in own] == [
            (f"{n}", "0", "1") for n in range(STEPS)
        ]
        assert same({name: [float(row[name]) for row in own] for name in curves(run)}, curves(run))
        assert same({name: frame[frame["run"] == run.path.name][name].tolist() for name in curves(run)}, curves(run))


def test_parquet_gives_every_number_back(runs: list[RecordedRun], exported_to: Callable[[str], Path]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(exported_to("parquet"))
    assert str(table.schema.field("loss").type) == "double" and str(table.schema.field("step").type) == "int64"
    for run in runs:
        own = [row for row in table.to_pylist() if row["run"] == run.path.name]
        assert [row["step"] for row in own] == list(range(STEPS))
        assert same({name: [row[name] for row in own] for name in curves(run)}, curves(run))
    facts = json.loads(table.schema.metadata[b"numdrift"])
    assert facts["schema"] == 1 and facts["runs"]["cpu_main"]["torch"] == torch.__version__


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_what_a_step_lacks_is_no_nan(runs: list[RecordedRun], tmp_path: Path, to: str) -> None:
    if to == "parquet":
        pytest.importorskip("pyarrow")
    # given a run whose second step has no loss, and nothing logged
    run = exported(runs[0])
    steps = [run.steps[0], StepRecord(1, (), 0.5), *run.steps[2:]]
    lacking = ExportedRun(run.name, run.mode, run.suffix, 0, run.facts, run.status, run.began, run.ended, steps, False)
    # when
    export_runs("study", [lacking], to, tmp_path / to, force=False)
    # then
    row: dict[str, Any]
    if to == "csv":
        row = list(csv.DictReader((tmp_path / to).read_text().splitlines()))[1]
        assert [row[name] for name in ("loss", "loss_1", "logged/value")] == ["", "", ""]
    else:
        row = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / to).to_pylist()[1]
        assert [row[name] for name in ("loss", "loss_1", "logged/value")] == [None, None, None]


def test_tensorboard_gives_every_number_back_as_float32(
    runs: list[RecordedRun], exported_to: Callable[[str], Path]
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tensors = pytest.importorskip("tensorboard.util.tensor_util")
    folder = exported_to("tensorboard")
    assert {path.name for path in folder.iterdir() if path.is_dir()} == {run.path.name for run in runs}
    for run in runs:
        events = accumulator.EventAccumulator(str(folder / run.path.name), size_guidance={"tensors": 0})
        events.Reload()
        found = {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}
        read = {tag: [tensors.make_ndarray(one.tensor_proto) for one in of] for tag, of in found.items()}
        assert {str(one.dtype) for of in read.values() for one in of} == {"float32"}
        with np.errstate(over="ignore"):
            rounded = {tag: [float(np.float32(one)) for one in of] for tag, of in curves(run).items()}
        assert same({tag: [one.item() for one in of] for tag, of in read.items()}, rounded)
        assert [one.step for one in found["loss"]] == list(range(STEPS))
        times = np.diff([one.wall_time for one in found["loss"]])
        assert times == pytest.approx(np.diff(curves(run)["seconds"]), abs=1e-5)


def test_losses_of_float32_are_exact_in_tensorboard(runs: list[RecordedRun]) -> None:
    losses = [loss for run in runs for loss in run.journal.losses]
    assert same({"loss": [float(np.float32(loss)) for loss in losses]}, {"loss": losses})


@pytest.mark.slow
def test_mlflow_gives_every_number_back(
    runs: list[RecordedRun], exported_to: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking")
    store = exported_to("mlflow")
    client = tracking.MlflowClient(tracking_uri=store.as_uri())
    experiment = client.get_experiment_by_name("study")
    assert experiment.artifact_location == (store / "artifacts").as_uri()
    found = {one.info.run_name: one for one in client.search_runs([experiment.experiment_id])}
    assert set(found) == {run.path.name for run in runs}
    for run in runs:
        one = found[run.path.name]
        history = {name: client.get_metric_history(one.info.run_id, name) for name in one.data.metrics}
        assert same({name: [point.value for point in of] for name, of in history.items()}, curves(run))
        assert [point.step for point in history["loss"]] == list(range(STEPS))
        assert one.data.params["mode"] == run.manifest.spec and one.data.params["torch"] == torch.__version__
        assert one.data.params["script"] == run.manifest.reproducer
        assert one.info.status == ("FINISHED" if run.manifest.status == "complete" else "FAILED")
        assert one.info.start_time // 1000 == int(exported(run).began)


@pytest.mark.slow
def test_wandb_gives_every_number_back(runs: list[RecordedRun], exported_to: Callable[[str], Path]) -> None:
    pytest.importorskip("wandb")
    folder = exported_to("wandb") / "wandb"
    found: dict[str, list[dict[str, Any]]] = {}
    for file in folder.glob("offline-run-*/run-*.wandb"):
        read = subprocess.run(
            [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        records = [json.loads(line) for line in read.stdout.splitlines()]
        of_run = next(one["run"] for one in records if one["type"] == "run")
        assert of_run["project"] == "study" and of_run["config"]["update"]["torch"] == torch.__version__
        found[of_run["display_name"]] = [one["history"]["item"] for one in records if one["type"] == "history"]
    assert set(found) == {run.path.name for run in runs}
    for run in runs:
        items = found[run.path.name]
        assert [item["_step"] for item in items] == list(range(STEPS))
        # a number that is none is text there
        assert same({name: [float(item[name]) for item in items] for name in curves(run)}, curves(run))
        assert [item["_timestamp"] for item in items] == [
            exported(run).began + step.seconds for step in run.journal.steps
        ]
    # and nothing of the library's own is left that would point outside of the folder
    assert not [path for path in folder.rglob("*") if path.is_symlink() and not path.exists()]


def test_each_process_of_a_run_has_a_name_of_its_own(runs: list[RecordedRun], tmp_path: Path) -> None:
    # given a run of two processes, whose second one lies in the folder of the first
    folder = tmp_path / "study" / "cpu_main"
    for place, rank in ((folder, 0), (folder / "rank1", 1)):
        shutil.copytree(runs[0].path, place)
        replace(runs[0].manifest, rank=rank, world_size=2).write(place / "run.json")
    # when
    table = tmp_path / "steps.csv"
    found = runs_exported("study", tmp_path, (), (), "csv", table, force=False)
    # then
    names = [("cpu_main", 0), ("cpu_main_rank1", 1)]
    assert [(run.name, run.rank) for run in found] == names
    rows = csv.DictReader(table.read_text().splitlines())
    assert list(dict.fromkeys((row["run"], int(row["rank"])) for row in rows)) == names


def test_losses_of_optimizers_that_take_turns_are_curves_of_their_own(runs: list[RecordedRun]) -> None:
    run = exported(runs[0])
    steps = [StepRecord(0, (1.0,), 0.1), StepRecord(1, (2.0,), 0.2, optimizer=1)]
    turns = ExportedRun(run.name, run.mode, run.suffix, 0, run.facts, run.status, run.began, run.ended, steps, True)
    assert [turns.scalars(step) for step in steps] == [
        {"optimizer_1/loss": 1.0, "seconds": 0.1},
        {"optimizer_2/loss": 2.0, "seconds": 0.2},
    ]
