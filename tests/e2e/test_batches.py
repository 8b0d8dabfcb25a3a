"""Batches side by side: suffixes, collisions, pickles, plots, comparisons."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from numdrift import load_run, read_pickle

from ..conftest import ROOT, Numdrift


def _contents(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_a_second_suffix_touches_nothing_of_the_first(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs/tiny"
    assert numdrift("run", tiny, "--modes", "cpu", "--suffix", "A").returncode == 0
    assert numdrift("plot", "--suffix", "A").returncode == 0
    before = _contents(folder)
    assert numdrift("run", tiny, "--modes", "cpu", "--suffix", "B", "--", "--width", "5").returncode == 0
    assert numdrift("plot", "--suffix", "A", "--suffix", "B").returncode == 0
    after = _contents(folder)
    assert {name: after[name] for name in before} == before
    new = {"verify_cpu_B.pkl", "A_vs_B_loss_curve.png", "A_vs_B_loss_curve.svg", "cpu_B/run.json"}
    assert new <= set(after)


def test_the_same_suffix_twice_needs_force(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    arguments = ("run", tiny, "--modes", "cpu", "--suffix", "A")
    numdrift(*arguments)
    before = _contents(tmp_path / "runs")
    again = numdrift(*arguments)
    assert again.returncode == 2
    assert "cpu_A exists already" in again.stderr and "--force" in again.stderr
    assert _contents(tmp_path / "runs") == before
    assert numdrift(*arguments, "--force", "--", "--steps", "7").returncode == 0
    assert load_run(tmp_path / "runs/tiny/cpu_A").manifest.steps == 7


def test_without_a_name_every_run_gets_a_folder_of_its_own(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert numdrift("run", tiny, "--modes", "cpu", "--", "--steps", "1").returncode == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"tiny", "tiny-2"}


def test_another_reproducer_does_not_get_into_an_investigation(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    numdrift("run", tiny, "--modes", "cpu", "--name", "study", "--", "--steps", "1")
    other = tmp_path / "other.py"
    other.write_text("pass\n")
    done = numdrift("run", other, "--modes", "lazy", "--name", "study")
    assert done.returncode == 2
    assert "tiny.py" in done.stderr and "--name" in done.stderr


def test_pickle_holds_the_losses_and_parameters_of_plain_pytorch(
    numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    numdrift("run", tiny, "--modes", "cpu", "--suffix", "A", "--", "--steps", "5")
    content = read_pickle(tmp_path / "runs/tiny/verify_cpu_A.pkl")
    losses, states = _plain_training(5)
    assert (content["schema"], content["mode"]) == (1, "cpu")
    assert content["losses"] == losses
    assert content["state_dict_steps"] == [0, 1, 2, 3, 4]
    for ours, plain in zip(content["state_dicts"], states, strict=True):
        assert list(ours) == list(plain)
        assert all(np.array_equal(ours[name], plain[name]) for name in plain)


def _plain_training(steps: int) -> tuple[list[float], list[dict[str, np.ndarray]]]:
    """The training of tiny.py, written again in plain PyTorch."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 4)
    targets = inputs.sum(1, keepdim=True).tanh()
    losses, states = [], []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
        states.append({name: value.numpy().copy() for name, value in model.state_dict().items()})
    return losses, states


def test_compare_finds_where_two_runs_part(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    script = tmp_path / "fault.py"
    text = tiny.read_text().replace(
        "        optimizer.step()\n",
        "        if step == 3 and os.environ.get('FAULT'):\n"
        "            model[2].weight.grad *= 1.5\n"
        "        optimizer.step()\n",
    )
    script.write_text(text)
    numdrift("run", script, "--mode", "cpu", "--mode", "bad=cpu,env.FAULT=1", "--mode", "same=cpu", "--name", "s")
    done = numdrift("compare", "s", "--json", "-")
    assert done.returncode == 1  # whether it is more than rounding takes experiments
    said = json.loads(done.stdout)
    bad, same = said["distances"]
    assert [pair["verdict"] for pair in said["pairs"]] == [None, "identical"]
    assert said["pairs"][0]["first_differing_step"] == 3
    assert bad["first_tensor"] == {"step": 3, "tensor": "2.weight", "what": "gradient"}
    assert bad["losses"]["first_differing_step"] == 4
    assert bad["parameters_step"] == 9
    weights = [load_run(tmp_path / "runs/s" / mode).journal.values(9)["2.weight"] for mode in ("cpu", "bad")]
    distance = np.linalg.norm(weights[0] - weights[1]) / np.linalg.norm(weights[0])
    row = next(row for row in bad["parameters"]["drifts"] if row["name"] == "2.weight")
    assert np.isclose(row["relative_l2"], distance, rtol=1e-6)
    assert not bad["identical"] and same["identical"]
    shown = numdrift("compare", "runs/s/cpu", "runs/s/bad").stdout
    assert "2.weight (gradient) at step 3" in shown
    # and two runs of one mode are told apart by their investigations
    shutil.copytree(tmp_path / "runs/s", tmp_path / "runs/later")
    shown = numdrift("compare", "runs/s/cpu", "runs/later/cpu").stdout
    assert "later/cpu against s/cpu: identical" in shown


def test_runs_are_listed_shown_and_removed(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    numdrift("run", tiny, "--modes", "cpu,lazy", "--suffix", "A", "--jobs", "2")
    listed = numdrift("runs", "list", "--json", "-")
    assert [run["mode"] for run in json.loads(listed.stdout)["runs"]] == ["cpu", "lazy"]
    assert "complete" in numdrift("runs", "show", "runs/tiny/lazy_A").stdout
    assert numdrift("runs", "rm", "runs/tiny/lazy_A", "--yes").returncode == 0
    assert {path.name for path in (tmp_path / "runs/tiny").iterdir()} == {"cpu_A", "verify_cpu_A.pkl"}
    assert numdrift("runs", "rm", "tiny", "--suffix", "A", "--yes").returncode == 0
    assert "no runs" in numdrift("runs", "list").stdout


@pytest.mark.slow
def test_the_batch_script_runs_plots_and_compares(tiny: Path, tmp_path: Path) -> None:
    variables = {"SUFFIX": "t", "MODES": "cpu,lazy", "EPOCHS": "3", "OUT": str(tmp_path)}
    command = ["bash", str(ROOT / "run.sh"), "--quiet"]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in (tmp_path / "sam_tanh").iterdir()}
    assert {"verify_cpu_t.pkl", "verify_lazy_t.pkl", "t_loss_curve.png", "t_loss_curve.svg"} <= made
    assert "first differing step" in done.stdout
    again = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert "--force" in again.stderr
