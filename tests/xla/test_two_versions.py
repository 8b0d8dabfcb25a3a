"""Two versions of torch in one investigation: what differs is said first, and whether a culprit is the version's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT
from ..processes.forked import numdrift_in
from .conftest import PYTHON

pytestmark = pytest.mark.slow

SCRIPTS = ROOT / "tests/xla/scripts"

BITS = """
import hashlib, torch
torch.manual_seed(0)
x = torch.randn(32, 8, 6, 6)
for result in (torch.nn.functional.group_norm(x, 2), torch.nn.functional.gelu(x)):
    print(hashlib.sha256(bytes(result.flatten().view(torch.uint8).tolist())).hexdigest())
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("two-versions")


@pytest.fixture(scope="module")
def one_mode(folder: Path) -> tuple[str, str, dict[str, Any]]:
    """What is printed while and after a script is investigated in one mode of two versions, and its one pair."""
    modes = [f"new=cpu,python={sys.executable}", f"old=cpu,python={PYTHON}"]
    return _investigated(folder, "grouped.py", modes, "versions")


@pytest.fixture(scope="module")
def two_modes(folder: Path) -> tuple[str, str, dict[str, Any]]:
    """The same of cpu in one version and xla in the other, of which no step is taken apart."""
    modes = [f"cpu,python={sys.executable}", f"xla,python={PYTHON}"]
    return _investigated(folder, "plain.py", modes, "modes", "--quick")


def _investigated(
    folder: Path, script: str, modes: list[str], name: str, *options: str
) -> tuple[str, str, dict[str, Any]]:
    asked = [word for mode in modes for word in ("--mode", mode)]
    done = numdrift_in(folder, "investigate", SCRIPTS / script, *asked, "--name", name, *options)
    assert done.returncode == 0, done.stderr
    (pair,) = json.loads((folder / f"runs/{name}/investigation.json").read_text())["pairs"]
    return done.stderr, done.stdout, pair


def test_the_first_lines_say_what_differs_and_nothing_that_does_not(one_mode: tuple[str, str, dict[str, Any]]) -> None:
    progress, answer, _ = one_mode
    ours, theirs, differs, blame, *_ = progress.splitlines()
    assert ours.startswith(f"new runs in {sys.executable}: torch ") and theirs.startswith("old runs in ")
    assert differs.startswith("the interpreters of new and old differ: torch ") and "oneDNN " in differs
    # both were built with one MKL and run on one CPU with as many threads
    assert "MKL" not in differs and "threads" not in differs and "capability" not in differs
    assert blame == "the modes are otherwise the same, so a difference comes from the version"
    assert answer.splitlines()[1] == f"{differs[0].upper()}{differs[1:]}."


def test_the_culprit_is_an_op_of_both_versions(one_mode: tuple[str, str, dict[str, Any]], folder: Path) -> None:
    _, answer, pair = one_mode
    (culprit,) = pair["culprits"]
    assert (culprit["op"], culprit["status"], culprit["blame"]) == ("aten.native_group_norm", "culprit", "version")
    ours, theirs = pair["interpreters"]["torch"]["a"], pair["interpreters"]["torch"]["b"]
    assert culprit["torch"] == {"a": ours, "b": theirs} and theirs.startswith("2.9.")
    said = f"aten.native_group_norm of torch {ours} against aten.native_group_norm of torch {theirs}"
    assert f"{said}: the kernel differs because of the version" in answer
    assert f"only the version of torch differs (torch {theirs} against {ours})" in answer.splitlines()[0]
    page = (folder / "runs/versions/report.html").read_text()
    assert page.index("They differ (new against old): torch") < page.index("<nav")


def test_the_kernels_are_what_they_are_said_to_be() -> None:
    results = [
        subprocess.run([python, "-c", BITS], capture_output=True, text=True, check=True).stdout.split()
        for python in (sys.executable, str(PYTHON))
    ]
    (norm_here, gelu_here), (norm_there, gelu_there) = results
    assert norm_here != norm_there and gelu_here == gelu_there


@pytest.mark.exhaustive
def test_another_mode_in_another_version_is_told_apart_by_a_command(
    two_modes: tuple[str, str, dict[str, Any]],
) -> None:
    progress, answer, pair = two_modes
    assert "a difference may come from the version, not the mode" in progress.splitlines()[3]
    two = pair["interpreters"]
    assert two["blame"] == "version or mode" and f"--mode cpu,python={PYTHON}" in two["command"]
    first, second, *_ = answer.splitlines()
    assert (
        f"that may come from the version, not the mode (torch {two['torch']['b']} against {two['torch']['a']})" in first
    )
    assert f"run the reference in the same interpreter: {two['command']}" in first
    assert second.startswith("The interpreters of cpu and xla differ: torch ")
