"""`--max-steps`, `--max-seconds`: a training that would go on for ever is ended as complete, and is what it was until
there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numdrift import load_run
from numdrift.harness.api.snapshot_taking import SnapshotRequest, planned_again, planned_snapshots
from numdrift.harness.records.modes.mode_spec import parse_modes

from ..conftest import ROOT, Numdrift
from ..processes.forked import numdrift_in

ENDLESS = ("--steps", "1000000000")
SCRIPTS = ROOT / "tests" / "e2e" / "scripts"
RANKS, LATE = SCRIPTS / "ranks.py", SCRIPTS / "late.py"


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
    assert refused.returncode == 2 and "is already recorded" in refused.stderr


ENDS_ITSELF = """
import os
import torch
from torch import nn
torch.manual_seed(3)
x = torch.randn(64, 8)
y = x @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(int(os.environ.get("STEPS", "30"))):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if loss.item() < float(os.environ.get("LIMIT", "0")):
        break
"""


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["cpu", "k"])
def test_a_script_that_ends_by_a_value_is_no_other_setup(reference: str, numdrift: Numdrift, tmp_path: Path) -> None:
    # given a limit that lies between the losses of two modes that differ by rounding
    script = tmp_path / "train.py"
    script.write_text(ENDS_ITSELF)
    modes = ["cpu", "k=cpu,kernel.tanh_backward=decomposed"][:: 1 if reference == "cpu" else -1]
    asked = [word for mode in modes for word in ("--mode", mode)]
    assert numdrift("run", script, *asked, "--name", "free").returncode == 0
    one, other = (load_run(tmp_path / "runs/free" / mode).journal.losses for mode in ("cpu", "k"))
    step = next(
        step
        for step in range(10, 30)
        if one[step] != other[step] and min(one[step], other[step]) < min(one[:step] + other[:step])
    )
    limits = {"LIMIT": repr((one[step] + other[step]) / 2)}
    # when
    how = ("--no-scripts", "--no-confirm", "--localize", "none", "--name", "s")
    done = numdrift_in(tmp_path, "investigate", script, *asked, *how, timeout=300, **limits)
    # then the lengths differ, and that is told as what it is
    found = json.loads((tmp_path / "runs/s/investigation.json").read_text())
    assert {run["steps"] for run in found["runs"].values()} >= {step + 1} and len(found["runs"]) == 2
    (pair,) = found["pairs"]
    assert pair["verdict"] == "rounding" and done.returncode == 0
    told = next(text for text in pair["text"] if text.startswith("a computed value ends the script"))
    assert f"the loss of step {step} is " in told and f"it ends when {reference} does" in told


@pytest.mark.slow
def test_another_number_of_steps_is_another_setup(numdrift: Numdrift, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(ENDS_ITSELF)
    asked = ("--mode", "cpu", "--mode", "k=cpu,kernel.tanh_backward=decomposed,env.STEPS=28")
    assert numdrift("investigate", script, *asked, "--localize", "none", "--name", "s", timeout=300).returncode == 1
    (pair,) = json.loads((tmp_path / "runs/s/investigation.json").read_text())["pairs"]
    assert pair["verdict"] == "different-setup" and "30 against 28 steps" in pair["text"][0]


@pytest.mark.slow
def test_all_ranks_end_at_the_same_step(numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as ranks have, which are forked then
    asked = ("run", RANKS, "--modes", "cpu", "--nproc", "2", "--max-steps", "2", "--name", "r")
    done = numdrift(*asked, "--", "--steps", "100", timeout=300)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "runs/r/cpu/run.json").read_text())
    assert manifest["status"] == "complete"
    assert [rank["steps"] for rank in manifest["ranks"]] == [2, 2]


@pytest.mark.slow
def test_trainings_that_were_ended_by_time_are_investigated_on_their_common_steps(
    numdrift: Numdrift, tmp_path: Path
) -> None:
    # given two modes whose half hour is over after four and five steps, and a reference that ends by itself
    modes = ("--mode", "cpu", "--mode", "same=cpu,env.LATE=3", "--mode", "bad=cpu,env.LATE=4,kernel.tanh_backward=bf16")
    asked = ("investigate", LATE, *modes, "--max-seconds", "1800", "--no-scripts", "--name", "late")
    done = numdrift(*asked, "--", "--steps", "8", timeout=300)
    # then each pair is judged as far as both came, and says so
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads((tmp_path / "runs/late/investigation.json").read_text())
    assert {name: run["steps"] for name, run in found["runs"].items()} == {"cpu": 8, "same": 4, "bad": 5}
    same, bad = found["pairs"]
    assert same["verdict"] == "identical" and "in their 4 common steps" in same["text"][0]
    assert "only the 4 common steps are compared: same was ended after 1800 s (--max-seconds)" in same["notes"]
    assert "only the 5 common steps are compared: bad was ended after 1800 s (--max-seconds)" in bad["notes"]
    assert bad["verdict"] == "beyond-rounding" and [step["step"] for step in bad["steps"]] == [0, 2, 4]
    assert bad["without"]["identical"] and bad["without"]["text"].endswith("equals cpu bit for bit in 5 common steps")
    # and every experiment is as long as its run: its own time is not limited
    assert all(control["repeatable"] for pair in (same, bad) for control in pair["controls"].values())
    lengths = {
        path.name: load_run(path).manifest.steps
        for path in (tmp_path / "runs/late/evidence").iterdir()
        if (path / "run.json").exists()
    }
    assert (lengths["cpu-again"], lengths["same-again"], lengths["bad-from-cpu"]) == (8, 4, 5)
    assert lengths["bad-without-cpu"] == 5
    # and the same call finds all of it
    again = numdrift(*asked, "--json", "-", "--quiet", "--", "--steps", "8", timeout=300)
    assert again.returncode == 1 and json.loads(again.stdout)["training_runs"] == 0
    compared = numdrift("compare", "runs/late", "--json", "-")
    assert [one["identical"] for one in json.loads(compared.stdout)["distances"]] == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("profile", "--modes", "cpu", "--steps", "1"),
        ("analyze", "--mode", "compile"),
        ("partition", "--mode", "compile", "--check"),
        ("snapshot", "take", "--modes", "cpu"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_that_trains_takes_both_limits(
    numdrift: Numdrift, tmp_path: Path, command: tuple[str, ...]
) -> None:
    limits = ("--max-steps", "3", "--max-seconds", "600")
    done = numdrift(*command, LATE, *limits, "--", "--steps", "1000000000", timeout=300)
    runs = [load_run(path.parent) for path in tmp_path.glob("runs/*/*/run.json")]
    assert runs, done.stdout + done.stderr
    for run in runs:
        assert run.manifest.status == "complete" and run.manifest.steps == 3
        assert json.loads((run.path / "config.json").read_text())["max_seconds"] == 600


def test_the_step_that_differs_is_reached_again_without_a_limit_of_time(tmp_path: Path) -> None:
    options = {"on": "drift", "out": tmp_path, "max_seconds": 60}
    request = SnapshotRequest.of(LATE, parse_modes("cpu,compile"), (), options)
    first = planned_snapshots(request)
    again = planned_again(first, first.modes[1], 4, request.choice)
    assert (first.max_seconds, again.max_seconds, again.max_steps) == (60, None, 5)


def test_seconds_of_several_processes_are_refused(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("run", RANKS, "--modes", "cpu", "--nproc", "2", "--max-seconds", "5")
    assert done.returncode == 2 and "--max-steps 20" in done.stderr
    assert not (tmp_path / "runs").exists()
