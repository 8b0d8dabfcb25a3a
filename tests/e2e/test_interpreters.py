"""A mode in another interpreter, in which torch and nothing else is installed, does what it does in numdrift's own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift

ENVIRONMENT = ROOT / ".venv-other"
PYTHON = ENVIRONMENT / "bin/python"
WIDE = ["--", "--steps", "4", "--width", "32"]


@pytest.fixture(scope="module", autouse=True)
def other_torch() -> None:
    subprocess.run([ROOT / "scripts/other-torch"], check=True)


def installed() -> list[str]:
    """What is installed in the other environment, compiled files of Python's aside."""
    packages = next(ENVIRONMENT.glob("lib/python*/site-packages"))
    return sorted(path.name for path in packages.iterdir() if path.name != "__pycache__")


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    [
        "cpu,kernel.tanh_backward=fma",
        *(
            pytest.param(mode, marks=[pytest.mark.exhaustive, pytest.mark.own_processes])
            for mode in ("compile,kernel.tanh_backward=fma,decompose.linear=off", "lazy")
        ),
    ],
)
def test_all_that_is_recorded_is_what_numdrifts_own_python_records(
    mode: str, numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    # given an environment that has torch alone
    before = installed()
    assert not {"numpy", "safetensors", "numdrift"} & set(before)

    # when a mode runs here and there, with ops, graphs and a kernel swapped
    base, *keys = mode.split(",")
    there_mode = ",".join([f"{base}-there={base}", f"python={PYTHON}", *keys])
    done = numdrift(
        *("run", tiny, "--mode", mode, "--mode", there_mode, "--record", "ops", "--graphs", "--name", "t"),
        *WIDE,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr

    # then the bits are the same
    here, there = (load_run(tmp_path / "runs/t" / name) for name in (base, f"{base}-there"))
    assert there.manifest.environment["executable"] == str(PYTHON)
    assert here.manifest.environment["executable"] != str(PYTHON)
    assert [step.losses for step in here.journal.steps] == [step.losses for step in there.journal.steps]
    assert len(there.journal.steps) == 4
    assert list(here.journal.digests()) == list(there.journal.digests())
    for name, value in here.journal.values(3).items():
        assert value.tobytes() == there.journal.values(3)[name].tobytes(), name

    # and so are the ops, the graphs and how often a swapped kernel ran
    assert [swap["calls"] for swap in there.manifest.swaps] == [swap["calls"] for swap in here.manifest.swaps]
    assert sorted(path.name for path in (here.path / "graphs").iterdir()) == sorted(
        path.name for path in (there.path / "graphs").iterdir()
    )
    if base != "lazy":
        assert (there.path / "journal/ops.jsonl").stat().st_size > 0

    # and nothing was installed there
    assert installed() == before


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.own_processes
def test_an_investigation_across_interpreters_finds_what_one_of_a_single_interpreter_finds(
    numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    done = numdrift(
        *(
            "investigate",
            tiny,
            "--name",
            "t",
            "--modes",
            "cpu,compile",
            "--mode",
            f"same=cpu,python={PYTHON}",
        ),
        *("--mode", f"compiled=compile,python={PYTHON}"),
        *WIDE,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "runs/t/investigation.json").read_text())
    pairs = {pair["b"]: pair for pair in found["pairs"]}
    assert pairs["same"]["verdict"] == "identical"
    assert pairs["compile"]["verdict"] == "rounding"
    for key in ("verdict", "first_differing_step", "score", "closer_to_fp64"):
        assert pairs["compiled"][key] == pairs["compile"][key], key
    assert _culprits(pairs["compiled"]) == _culprits(pairs["compile"]) != []


def _culprits(pair: dict[str, Any]) -> list[tuple[Any, ...]]:
    keys = ("phase", "op", "kind", "status", "places", "proof")
    return [tuple(culprit[key] for key in keys) for culprit in pair["culprits"]]


@pytest.mark.slow
def test_an_interpreter_that_cannot_serve_is_told_before_anything_is_trained(
    numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", tmp_path / "empty"], check=True)
    python = tmp_path / "empty/bin/python"
    for command in ("run", "investigate"):
        done = numdrift(command, tiny, "--mode", "cpu", "--mode", f"other=cpu,python={python}")
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].endswith(
            f"mode 'other': python={python} has no torch; install one there: {python} -m pip install torch"
        )
        assert not list(tmp_path.glob("runs/*/*/journal"))
