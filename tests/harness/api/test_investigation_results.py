"""Investigations as Python has them, read from what `investigation.json` says."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import numdrift
from numdrift.harness.errors import JournalError, RunNotFound, UsageError
from numdrift.harness.records.codec import read
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.findings import Findings, PairFindings, RunEnding
from numdrift.harness.runs.recorded_run import RecordedRun

CULPRIT: dict[str, Any] = {
    "status": "culprit",
    "phase": "backward",
    "module": "1",
    "places": ["1"],
    "op": "aten.tanh_backward",
    "source": "train.py:31",
    "step": 0,
    "kind": "kernel",
    "reasons": [],
    "significance": "beyond-rounding",
    "local_significance": "beyond-rounding",
    "error_ulp": {"a": 0.9, "b": math.inf},
    "rho": {"a": 0.4, "b": 12.0},
    "bound": {"a": 0.5, "b": None},
    "share_of_drift": 1.0,
    "proof": {
        "swap_in": {"holds": True, "score_before": 0.0, "score_after": 90.0},
        "swap_out": {"holds": False, "score_before": 91.0, "score_after": 91.0},
    },
    "script": {"path": "evidence/culprit-1.py", "reproduces": True},
}
SETUP = {"kind": "setup", "what": "initial", "name": "0.weight", "text": "0.weight starts <elsewhere>"}


def train(rate: float) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(3):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three recorded runs of one training, and findings about them."""
    out = tmp_path_factory.mktemp("runs")
    for mode, rate in (("cpu", 0.1), ("same=cpu", 0.1), ("other=cpu", 0.2)):
        with numdrift.record(mode, out, "study"):
            train(rate)
    told = {name: RunEnding("complete", 3, path=name) for name in ("cpu", "same", "other")}
    pairs = [
        PairFindings(a="cpu", b="same", verdict="identical", text=["identical: every bit"]),
        PairFindings(
            a="cpu",
            b="other",
            verdict="beyond-rounding",
            text=["beyond-rounding: <much>"],
            first_differing_step=1,
            first_significant_step=2,
            score=math.inf,
            threshold=16.0,
            closer_to_fp64="cpu",
            culprits=read(list[Culprit], [CULPRIT, SETUP]),
            notes=["a note"],
        ),
    ]
    Findings("train.py", "cpu", told, pairs, training_runs=2).write(out / "study")
    return out / "study"


def test_an_investigation_is_read_as_it_was_written(folder: Path) -> None:
    found = numdrift.load_investigation(str(folder))
    same, other = found.pairs
    assert (found.reproducer, found.reference, found.path, found.exit_code) == ("train.py", "cpu", folder, 1)
    assert (same.verdict, same.exit_code, same.culprits) == ("identical", 0, ())
    assert (other.verdict, other.first_significant_step, other.closer_to_fp64) == (
        "beyond-rounding",
        2,
        "cpu",
    )
    assert other.score == math.inf and other.exit_code == 1
    assert found.pair("other") is other
    with pytest.raises(RunNotFound, match="only same, other with cpu, not compile"):
        found.pair("compile")
    with pytest.raises(FrozenInstanceError):
        found.reference = "other"  # type: ignore[misc]


def test_culprits_have_place_proof_and_words(folder: Path) -> None:
    kernel, setup = numdrift.load_investigation(folder).culprits
    assert (kernel.op, kernel.phase, kernel.module, kernel.source) == (
        "aten.tanh_backward",
        "backward",
        "1",
        "train.py:31",
    )
    assert (kernel.swap_in_holds, kernel.swap_out_holds, kernel.share_of_drift) == (True, False, 1.0)
    assert kernel.error_ulp == {"a": 0.9, "b": math.inf} and kernel.script == Path("evidence/culprit-1.py")
    assert kernel.text[0] == "aten.tanh_backward in the backward of 1, train.py:31 (100 % of the drift)"
    assert (setup.kind, setup.op, setup.swap_in_holds, setup.script) == ("setup", None, None, None)
    assert setup.text == ("0.weight starts <elsewhere>",)


def test_frames_have_what_the_runs_recorded(folder: Path) -> None:
    found = numdrift.load_investigation(folder)
    losses, runs = found.losses(), found.runs
    assert list(losses.columns) == ["cpu", "same", "other"] and losses.index.tolist() == [0, 1, 2]
    for name, run in runs.items():
        assert losses[name].tolist() == run.journal.losses
    parameters = found.parameters()
    assert parameters[parameters["b"] == "same"]["differing"].sum() == 0
    last, theirs = (run.parameters() for run in (runs["cpu"], runs["other"]))
    for row in parameters[parameters["b"] == "other"].to_dict("records"):
        name = str(row["name"])
        assert row["max_absolute"] == np.abs(last[name].astype("float64") - theirs[name]).max()
        assert (row["step"], row["numel"]) == (2, last[name].size)
    assert found.verdicts()["verdict"].tolist() == ["identical", "beyond-rounding"]
    culprits = found.culprits_frame()
    assert culprits["op"].tolist()[0] == "aten.tanh_backward" and culprits["b"].tolist() == ["other", "other"]


def test_html_is_escaped_and_says_the_verdict(folder: Path) -> None:
    shown = numdrift.load_investigation(folder)._repr_html_()
    assert "beyond-rounding: &lt;much&gt;" in shown and "<much>" not in shown
    assert "starts &lt;elsewhere&gt;" in shown and "aten.tanh_backward in the backward of 1" in shown
    assert shown.count("<tr>") == 3 and "a note" in shown


def test_two_runs_are_compared_by_path_and_by_run(folder: Path) -> None:
    before = (folder / "investigation.json").read_bytes()
    a, b = numdrift.load_run(folder / "cpu"), numdrift.load_run(folder / "other")
    same = numdrift.compare(a, folder / "same")
    assert same.identical and same.first_differing_step is None and same.losses()["relative"].max() == 0.0
    other = numdrift.compare(str(folder / "cpu"), b)
    frame = other.losses()
    assert frame["absolute"].tolist() == (frame["a"] - frame["b"]).abs().tolist()
    assert not other.identical and other.first_differing_step == 0  # its parameters differ
    assert frame["absolute"].iloc[0] == 0.0 < frame["absolute"].iloc[1]
    assert set(other.parameters()["name"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert "other" in other._repr_html_()
    assert (folder / "investigation.json").read_bytes() == before


def test_what_is_not_there_or_damaged_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match=r"has no investigation\.json"):
        numdrift.load_investigation(tmp_path)
    for content in ("{", '{"schema": 99}', json.dumps({"schema": 1, "pairs": [], "runs": {}})):
        (tmp_path / "investigation.json").write_text(content)
        with pytest.raises(JournalError):
            numdrift.load_investigation(tmp_path)
    with pytest.raises(UsageError, match="not two runs of one investigation"):
        numdrift.localize(folder / "cpu", folder / "cpu")
    with pytest.raises(UsageError, match="leave out the options"):
        numdrift.investigate(folder, ["cpu", "compile"], out=folder.parent)
    with pytest.raises(UsageError, match="not only cpu"):
        numdrift.investigate(__file__, ["cpu"], out=tmp_path)
    with pytest.raises(UsageError, match="there is no script"):
        numdrift.run("nowhere.py", out=tmp_path)


def test_a_run_without_values_has_empty_frames(tmp_path: Path) -> None:
    with numdrift.record("cpu", tmp_path, "study", record="losses") as recording:
        train(0.1)
    run: RecordedRun = recording.run
    assert run.losses().tolist() == run.journal.losses
    assert run.digests().empty and isinstance(run.digests().index, pd.MultiIndex)
    with pytest.raises(UsageError, match="no parameters were kept"):
        run.parameters()
