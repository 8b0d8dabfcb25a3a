"""Each reproducer is a plain script: it trains, saves and refuses bad arguments without numdrift."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from ..processes.forked import python

FOLDER = Path(__file__).parents[2] / "reproducers"
SCRIPTS = {  # name: (option for the number of steps, steps that show a falling loss)
    "sam_tanh": ("--epochs", 30),
    "char_gpt": ("--steps", 3),
    "resnet_digits": ("--steps", 5),
}


def run(name: str, *arguments: str, device: str = "cpu") -> subprocess.CompletedProcess[str]:
    return python(FOLDER.parent, FOLDER / f"{name}.py", *arguments, DEVICE=device)


@pytest.mark.parametrize("name", SCRIPTS)
def test_trains_and_saves(name: str, tmp_path: Path) -> None:
    option, steps = SCRIPTS[name]

    result = run(name, option, str(steps), "--save", str(tmp_path / "run.npz"))

    assert result.returncode == 0, result.stderr
    assert "final loss" in result.stdout
    with np.load(tmp_path / "run.npz") as arrays:
        losses = arrays["losses"]
        parameters = [arrays[key] for key in arrays.files if key.startswith("param/")]
    assert losses.dtype == np.float64 and losses.shape == (steps,)
    assert losses[-1] < losses[0] and np.isfinite(losses).all()
    assert parameters and all(np.isfinite(p).all() for p in parameters)


BAD = [
    ("sam_tanh", ["--epochs", "0"], "cpu", "--epochs must be at least 1, not 0"),
    ("resnet_digits", [], "toaster", "--device must be one of cpu, lazy"),
    ("char_gpt", ["--device", "lazy", "--compile"], "cpu", "--compile cannot compile lazy tensors"),
]


@pytest.mark.parametrize(("name", "arguments", "device", "message"), BAD)
def test_bad_argument_ends_in_one_line(name: str, arguments: list[str], device: str, message: str) -> None:
    result = run(name, *arguments, device=device)

    assert result.returncode == 2
    usage, error = result.stderr.splitlines()
    assert usage == f"usage: {name}.py [options]"
    assert error.startswith(f"{name}.py: error: {message}")
