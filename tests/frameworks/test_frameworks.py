"""Training frameworks, adopted without a word in the script: steps, losses, parameters, and no bit changed.

How the losses that are recorded, those that `backward` is called on, relate to what a framework logs:

    transformers.Trainer    each micro-batch's share of the step's loss; the log has their sum
    Accelerate              `accelerator.backward(loss)` divides by the number of micro-batches
    Lightning               divided by the number of micro-batches; the log has a step's last, undivided
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from numdrift import load_run

from ..conftest import ROOT, Numdrift
from ..processes.forked import python

HERE = ROOT / "tests/frameworks"

Steps = Sequence[Sequence[float]]
"""The losses of each step."""


@dataclass(frozen=True, slots=True)
class Framework:
    """A script, the class of the model that it calls, and how to read what it leaves in its output folder.

    `logged` gives the numbers that the framework logged, `seen` those that the recorded losses of micro-batches (so
    many a step) amount to, `breaks` the files in which a compiled call goes back to Python.
    """

    script: str
    model: str
    logged: Callable[[Path, str], list[float]]
    seen: Callable[[Steps, int], list[float]]
    parameters: Callable[[Path], Mapping[str, torch.Tensor]]
    breaks: frozenset[str] = frozenset()


def trainer_log(output: Path, _: str) -> list[float]:
    return [entry["loss"] for entry in json.loads((output / "log.json").read_text()) if "loss" in entry]


def sums(steps: Steps, _: int) -> list[float]:
    totals = []
    for losses in steps:
        total = np.float32(0)
        for loss in losses:
            total += np.float32(loss)
        totals.append(float(total))
    return totals


def printed(_: Path, stdout: str) -> list[float]:
    return [float(line.split()[1]) for line in stdout.splitlines() if line.startswith("loss ")]


def multiplied(steps: Steps, micro_batches: int) -> list[float]:
    return [loss * micro_batches for losses in steps for loss in losses]


def lightning_log(output: Path, _: str) -> list[float]:
    rows = csv.DictReader((output / "log/metrics.csv").read_text().splitlines())
    return [float(row["train_loss"]) for row in rows if row["train_loss"]]


def last_multiplied(steps: Steps, micro_batches: int) -> list[float]:
    return [losses[-1] * micro_batches for losses in steps]


def lightning_parameters(output: Path) -> Mapping[str, torch.Tensor]:
    checkpoint = torch.load(output / "last.ckpt", weights_only=False)
    found: Mapping[str, torch.Tensor] = checkpoint["state_dict"]
    return found


FRAMEWORKS = {
    "transformers": Framework(
        "transformers_trainer.py",
        "GPT2LMHeadModel",
        trainer_log,
        sums,
        lambda output: load_file(output / "model.safetensors"),
        breaks=frozenset({"modeling_utils.py"}),  # it warns in the first forward that the kind of loss is a guess
    ),
    "accelerate": Framework(
        "accelerate_loop.py",
        "Classifier",
        printed,
        multiplied,
        lambda output: torch.load(output / "model.pt"),
    ),
    "lightning": Framework("lightning_module.py", "Autoencoder", lightning_log, last_multiplied, lightning_parameters),
}

ACCUMULATED = {
    "transformers": ["--accumulate", "2"],
    "accelerate": ["--accumulate", "2", "--mixed-precision", "bf16"],
    "lightning": ["--accumulate", "2", "--precision", "bf16-mixed"],
}

CASES = [
    (name, mode, batches)
    for name in FRAMEWORKS
    for mode, batches in (("cpu", 1), ("cpu", 2), ("compile", 2), ("lazy", 1))
    if (name, mode) != ("transformers", "lazy")
]
EVERYDAY = [("transformers", "cpu", 2), ("lightning", "lazy", 1)]
"""With and without accumulation; the rest is exhaustive."""

STEPS = {
    ("transformers", 1): 5,
    ("transformers", 2): 5,
    ("accelerate", 1): 8,
    ("accelerate", 2): 4,
    ("lightning", 1): 8,
    ("lightning", 2): 4,
}


@pytest.fixture(autouse=True)
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode", "micro_batches"),
    [pytest.param(*case, marks=[] if case in EVERYDAY else pytest.mark.exhaustive) for case in CASES],
)
def test_a_framework_is_adopted_as_it_is(
    name: str, mode: str, micro_batches: int, numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, mode) == ("transformers", "compile"):
        # compiled embeddings add up their gradients atomically: with two threads no run of GPT-2 repeats another's bits
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
    framework = FRAMEWORKS[name]
    script = HERE / "scripts" / framework.script
    options = ACCUMULATED[name] if micro_batches == 2 else []
    bare, said = _bare(script, framework.model if mode == "compile" else "", [*options, "--output", "bare"], tmp_path)

    spec = f"{mode},env.TORCH_LOGS=graph_breaks" if mode == "compile" else mode
    done = numdrift("run", script, "--mode", spec, "--in-place", "--", *options, "--output", "seen")
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "runs" / script.stem / mode)
    assert len(run.journal.steps) == STEPS[name, micro_batches]
    assert [len(step.losses) for step in run.journal.steps] == [micro_batches] * len(run.journal.steps)
    assert run.journal.events("doubt") == []
    assert run.manifest.notices == []
    assert [event["module"] for event in run.journal.events("adopted")] == [framework.model]

    # its losses are those that the framework itself logs, here and without numdrift
    logged = framework.logged(tmp_path / "seen", (run.path / "stdout.log").read_text())
    assert framework.seen([step.losses for step in run.journal.steps], micro_batches) == logged
    assert _same(np.array(framework.logged(tmp_path / "bare", bare)), np.array(logged), mode)

    # its parameters have the model's names, and are what the script saves, here and without numdrift
    expected, kept = (framework.parameters(tmp_path / where) for where in ("bare", "seen"))
    last = run.journal.values(len(run.journal.steps) - 1)
    named = {entry.name for entry in run.journal.tables[0] if entry.kind == "parameter"}
    assert set(expected) == set(kept) == named
    for parameter, tensor in expected.items():
        assert kept[parameter].numpy().tobytes() == last[parameter].tobytes(), parameter
        assert _same(tensor.numpy(), last[parameter], mode), parameter

    # and nothing is left to Python that torch.compile would not leave by itself
    breaks = _breaks((run.path / "stderr.log").read_text())
    assert breaks == _breaks(said)
    files = {Path(place.rpartition(":")[0]).name for place in breaks}
    assert files == (framework.breaks if mode == "compile" else set())


def _same(bare: NDArray[Any], seen: NDArray[Any], mode: str) -> bool:
    """Whether the bits are the same. In lazy mode, where the bare script would not run, it is compared with the script on
    the CPU, whose values are those but for rounding."""
    if mode == "lazy":
        return np.allclose(bare, seen, rtol=1e-5, atol=1e-6)
    return bare.tobytes() == seen.tobytes()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_what_the_lazy_core_cannot_do_is_told_in_one_line(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift(
        "run", HERE / "scripts/transformers_trainer.py", "--modes", "lazy", "--in-place", "--", "--output", "seen"
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("numdrift: mode lazy crashed: ")]
    assert "lazy" in line and "transformers_trainer.py:" in line


def _breaks(stderr: str) -> list[str]:
    """The lines at which the compiler left the code to Python, as torch itself logs them."""
    return re.findall(r"\[__graph_breaks\] Graph break .*in user code at (\S+:\d+)", stderr)


def _bare(script: Path, compiled: str, arguments: list[str], folder: Path) -> tuple[str, str]:
    """Run the script without numdrift, its model of that class compiled if one is given; gives what it printed."""
    launcher = [str(HERE / "compiled.py"), compiled] if compiled else []
    done = python(folder, *launcher, script, *arguments, PYTHONHASHSEED="0")
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr
