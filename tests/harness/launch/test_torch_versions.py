"""Ranges of versions of torch, and environments with them, with a pip that is made up here."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch.torch_versions import interpreter_with, versions_between

LISTED = "torch (2.15.0)\nAvailable versions: 2.14.0, 2.14.0rc1, 2.13.0+cpu, 2.13.0, 2.10.0, 2.9.1\n  INSTALLED: 2.13.0+cpu\n"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are executed. `pip install` fails for torch 2.10.0."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    executed = list[list[str]]()

    def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        executed.append(list(command))
        if "venv" in command:
            Path(command[-1]).mkdir(parents=True)
        if "torch==2.10.0" in command:
            raise subprocess.CalledProcessError(1, command, "", "collecting\nERROR: no matching distribution\n")
        printed = LISTED if "index" in command else ""
        return subprocess.CompletedProcess(command, 0, printed, "ERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", run)
    return executed


def test_a_range_has_the_released_versions_in_its_direction(commands: list[list[str]]) -> None:
    assert versions_between("2.9.1", "2.13.0") == ["2.9.1", "2.10.0", "2.13.0"]
    assert versions_between("2.14.0", "2.10.0", ["--index-url", "x"]) == ["2.14.0", "2.13.0", "2.10.0"]
    assert commands[-1][-2:] == ["--index-url", "x"]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [("2.9.1", "3.0", "there is no torch 3.0; pip has 2.9.1, 2.10.0"), ("2.9.1", "2.9.1", "is one version of torch")],
)
def test_what_is_no_range_of_versions_is_refused(commands: list[list[str]], good: str, bad: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        versions_between(good, bad)


def test_a_pip_that_lists_nothing_is_quoted(commands: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LISTED", "")
    with pytest.raises(UsageError, match="pip lists no versions of torch: ERROR: no network"):
        versions_between("2.9.1", "2.13.0")


def test_a_version_is_installed_once_and_one_that_cannot_be_is_said(commands: list[list[str]], tmp_path: Path) -> None:
    sentences = list[str]()
    python = interpreter_with("2.9.1", ["numpy"], ["--no-deps"], sentences.append)
    assert python.is_relative_to(tmp_path) and len(sentences) == 1
    assert commands[-1][-3:] == ["--no-deps", "torch==2.9.1", "numpy"]
    count = len(commands)
    assert interpreter_with("2.9.1", ["numpy"], ["--no-deps"], sentences.append) == python and len(commands) == count
    # other packages or another index make another environment, directly within the cache
    others = [(["numpy", "../x"], ["--no-deps"]), (["numpy"], ["--index-url", "https://x/cpu"])]
    pythons = {interpreter_with("2.9.1", packages, pip, sentences.append) for packages, pip in others}
    assert len(pythons | {python}) == 3 and {path.parents[2] for path in pythons} == {python.parents[2]}
    for _ in range(2):  # nothing is left of a failed installation
        with pytest.raises(UsageError, match=r"torch 2\.10\.0 cannot be installed: ERROR: no matching distribution"):
            interpreter_with("2.10.0", [], [], sentences.append)
