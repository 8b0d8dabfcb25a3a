"""`--max-steps`: a training that would go on for ever is ended as complete, and is what it was until there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift

ENDLESS = ("--steps", "1000000000")
RANKS = ROOT / "tests" / "e2e" / "scripts" / "ranks.py"


@pytest.mark.slow
def test_an_endless_training_has_the_steps_of_one_that_ends(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    modes = ("--modes", "cpu,compile,lazy")
    done = numdrift("run", tiny, *modes, "--max-steps", "4", "--name", "endless", "--", *ENDLESS, timeout=300)
    assert done.returncode == 0, done.stderr
    assert numdrift("run", tiny, *modes, "--name", "whole", "--", "--steps", "4").returncode == 0
    for mode in ("cpu", "compile", "lazy"):
        ended, whole = (load_run(tmp_path / "runs" / name / mode) for name in ("endless", "whole"))
        assert ended.manifest.status == "complete" and len(ended.journal.steps) == 4
        assert ended.journal.losses == whole.journal.losses
        assert list(ended.journal.digests()) == list(whole.journal.digests())
        assert ended.journal.value_steps == whole.journal.value_steps == [0, 1, 2, 3]


@pytest.mark.slow
def test_an_endless_training_is_investigated(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    modes = ("--mode", "cpu", "--mode", "bad=cpu,kernel.tanh_backward=bf16")
    asked = ("investigate", tiny, *modes, "--max-steps", "3", "--no-scripts", "--name", "endless")
    done = numdrift(*asked, "--", *ENDLESS, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads((tmp_path / "runs/endless/investigation.json").read_text())
    assert [run["steps"] for run in found["runs"].values()] == [3, 3]
    (pair,) = found["pairs"]
    assert pair["verdict"] == "beyond-rounding"
    assert [culprit["op"] for culprit in pair["culprits"]] == ["aten.tanh_backward"]
    # and the training without its culprit ends as well
    assert pair["without"]["identical"]
    # and what is recorded has the steps that it has
    refused = numdrift("investigate", "runs/endless", "--max-steps", "2")
    assert refused.returncode == 2 and "is recorded" in refused.stderr


@pytest.mark.slow
def test_all_ranks_end_at_the_same_step(numdrift: Numdrift, tmp_path: Path) -> None:
    asked = ("run", RANKS, "--modes", "cpu", "--nproc", "2", "--max-steps", "2", "--name", "r")
    done = numdrift(*asked, "--", "--steps", "100", timeout=300)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "runs/r/cpu/run.json").read_text())
    assert manifest["status"] == "complete"
    assert [rank["steps"] for rank in manifest["ranks"]] == [2, 2]
