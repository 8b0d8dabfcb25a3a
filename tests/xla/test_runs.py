"""Trainings in mode `xla`: what is recorded is what plain Python computes, wherever graphs are cut and whatever a script
says for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift
from .conftest import PYTHON

SCRIPTS = ROOT / "tests/xla/scripts"

pytestmark = pytest.mark.slow


def printed(runs: Path, mode: str) -> list[str]:
    return (runs / mode / "stdout.log").read_text().splitlines()


def test_the_doctor_tries_it_in_the_environment_beside(numdrift: Numdrift) -> None:
    done = numdrift("doctor", "--modes", "xla", "--json", "-")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["works"], finding
    # where numdrift's own environment really lies
    python = Path(sys.prefix).parent / ".venv-xla/bin/python"
    assert finding["summary"].startswith(f"torch_xla (PJRT), in {python}: torch 2.9.0")


@pytest.mark.parametrize(
    ("reproducer", "steps"),
    [("sam_tanh", 6), *(pytest.param(name, 3, marks=pytest.mark.exhaustive) for name in ("char_gpt", "resnet_digits"))],
)
def test_recording_changes_no_bit(reproducer: str, steps: int, numdrift: Numdrift, tmp_path: Path) -> None:
    script, arguments = ROOT / f"reproducers/{reproducer}.py", ["--epochs", str(steps)]
    with subprocess.Popen(
        [PYTHON, script, *arguments, "--save", tmp_path / "bare.npz"],
        env=os.environ | {"DEVICE": "xla", "PJRT_DEVICE": "CPU", "PYTHONHASHSEED": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as bare:
        done = numdrift(
            *("run", script, "--modes", "xla", "--metrics", "--name", "t", "--keep-files", "--", *arguments),
            *("--save", tmp_path / "recorded.npz"),
        )
    assert (bare.returncode, done.returncode) == (0, 0), done.stderr
    plain = np.load(tmp_path / "bare.npz")
    kept = (tmp_path / "runs/t/xla/files").rglob("recorded.npz")
    under_numdrift = np.load(next(kept, tmp_path / "recorded.npz"))
    run = load_run(tmp_path / "runs/t/xla")
    last = run.journal.values(steps - 1)
    assert [step.loss for step in run.journal.steps] == plain["losses"].tolist()
    for name in plain:
        assert plain[name].tobytes() == under_numdrift[name].tobytes(), name
        if name.startswith("param/"):
            assert plain[name].tobytes() == last[name.removeprefix("param/")].tobytes(), name


def test_a_script_that_asks_for_cuda_runs_wherever_its_graphs_are_cut(numdrift: Numdrift, tmp_path: Path) -> None:
    modes = ["cpu", "auto=xla", "step=xla,mark_step=step", "off=xla,mark_step=off", "op=xla,execute=op"]
    single = [word for mode in modes for word in ("--mode", mode)]
    done = numdrift("run", SCRIPTS / "plain.py", *single, "--name", "t", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    assert "cpu, auto, step, off and op run in " in done.stderr
    runs = tmp_path / "runs/t"
    compiled: dict[str, int] = {}
    reference = load_run(runs / "cpu")
    for mode in ("auto", "step", "off", "op"):
        run = load_run(runs / mode)
        assert [step.loss for step in run.journal.steps] == pytest.approx(
            [step.loss for step in reference.journal.steps], rel=1e-5
        )
        for name, value in reference.journal.values(4).items():
            np.testing.assert_allclose(run.journal.values(4)[name], value, rtol=1e-4, atol=1e-5)
        device, count = printed(runs, mode)[-1].split()
        assert device == "xla"
        compiled[mode] = int(count)
    # the first optimizer's step is another graph than the later ones; forward and backward are one with it, or apart;
    # each op by itself is compiled once
    assert compiled["step"] == compiled["off"] == 2 and compiled["auto"] == 3
    assert compiled["op"] > 10


@pytest.mark.parametrize(
    "words",
    [
        "mark",
        "step",
        "loader",
        *(pytest.param(one, marks=pytest.mark.exhaustive) for one in ("barrier", "named", "traced")),
    ],
)
def test_a_script_that_speaks_of_torch_xla_runs_as_it_is_and_on_the_cpu(
    words: str, numdrift: Numdrift, tmp_path: Path
) -> None:
    done = numdrift("run", SCRIPTS / "native.py", "--modes", "cpu,xla", "--name", "t", "--jobs", "2", "--", words)
    assert done.returncode == 0, done.stderr
    assert "torch_xla is replaced on cpu" in done.stderr
    runs = tmp_path / "runs/t"
    cpu, xla = (load_run(runs / mode) for mode in ("cpu", "xla"))
    assert len(cpu.journal.steps) == len(xla.journal.steps) == 6
    for one, other in zip(cpu.journal.steps, xla.journal.steps, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
    for name, value in cpu.journal.values(5).items():
        np.testing.assert_allclose(xla.journal.values(5)[name], value, rtol=1e-4, atol=1e-6)
    # the same closures at the same steps, and no graph beside the script's own: of the first step and of the others
    *said, compiled = printed(runs, "xla")
    assert said == printed(runs, "cpu")[:-1]
    assert compiled == "compiled 2"


WITHOUT_CUTS = """
import torch
import torch_xla

torch.manual_seed(0)
model = torch.nn.Linear(8, 1).to("xla")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(16, 8).to("xla")
for _ in range(4):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""


def test_a_script_that_imports_torch_xla_and_cuts_nowhere_is_cut_by_phases(numdrift: Numdrift, tmp_path: Path) -> None:
    script = tmp_path / "without_cuts.py"
    script.write_text(WITHOUT_CUTS, encoding="utf-8")
    done = numdrift("run", script, "--mode", "xla", "--mode", "phase=xla,mark_step=phase", "--metrics", "--name", "t")
    assert done.returncode == 0, done.stderr
    metrics = json.loads(numdrift("metrics", "runs/t", "--json", "-").stdout)
    assert [one["executed"]["count"] for one in metrics["runs"]] == [8, 8]  # two graphs a step


def test_a_platform_that_is_not_here_is_named(numdrift: Numdrift) -> None:
    done = numdrift("run", SCRIPTS / "plain.py", "--mode", "xla,env.PJRT_DEVICE=FOO", "--name", "t")
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("numdrift: ")]
    assert "PJRT_DEVICE=FOO is not a platform that torch_xla finds here" in line
    assert "unset PJRT_DEVICE, or add env.PJRT_DEVICE=CPU to the mode" in line
