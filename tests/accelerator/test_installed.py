"""The stand-in is found: by numdrift as a mode, by torch as a backend that it loads by itself, by the reproducers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Standin
from .installed import install

REPRODUCERS = Path(__file__).parents[2] / "reproducers"

pytestmark = pytest.mark.slow


def test_doctor_finds_the_mode(standin: Standin) -> None:
    done = standin("doctor")

    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("standin ")]
    assert " ".join(row) == "standin yes eager on the device 'standin' of standin_device"


def test_a_reproducer_trains_in_the_mode(standin: Standin) -> None:
    done = standin("run", REPRODUCERS / "char_gpt.py", "--modes", "standin", "--max-steps", "3", "--name", "trained")

    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout + done.stderr


def test_torch_loads_it_by_itself_where_it_may(tmp_path: Path) -> None:
    site = install(tmp_path / "site", autoload=True)
    done = subprocess.run(
        [sys.executable, REPRODUCERS / "sam_tanh.py", "--epochs", "20"],
        env=os.environ | {"DEVICE": "standin", "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "epoch 20: loss" in done.stdout
