"""The files of docs/ci do in a repository what they say: the action, the workflow that uses it, and the hook."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from ..conftest import ROOT, Numdrift
from ..e2e.test_baseline import FAULT, TRAIN, git

CI = ROOT / "docs/ci"


def loaded(name: str) -> Any:
    return yaml.safe_load((CI / name).read_text())


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the command `numdrift`, as an installation would put on the PATH."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "numdrift"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m numdrift "$@"\n')
    command.chmod(0o755)
    return folder


def executed(script: str, folder: Path, commands: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | variables | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    # GitHub executes `shell: bash` so
    words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
def test_the_action_and_the_hook_fail_where_the_training_has_changed(
    numdrift: Numdrift, tmp_path: Path, commands: Path
) -> None:
    # given a repository with a baseline, and a change that is a fault
    (tmp_path / "train.py").write_text(TRAIN)
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        git(tmp_path, *words)
    done = numdrift("baseline", "save", "train.py", "--to", "baselines/train.zip", "--steps", "0", "--", "--steps", "2")
    assert done.returncode == 0, done.stderr
    [step] = loaded("action.yml")["runs"]["steps"]
    used = next(
        step for step in loaded("workflow.yml")["jobs"]["baseline"]["steps"] if "numdrift" in step.get("uses", "")
    )
    inputs = {name: facts.get("default", "") for name, facts in loaded("action.yml")["inputs"].items()} | used["with"]
    variables = {
        name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], text)
        for name, text in step["env"].items()
    }
    [hook] = loaded("pre-commit-config.yaml")["repos"][0]["hooks"]

    passing = [executed(script, tmp_path, commands, **variables) for script in (step["run"], hook["entry"])]
    (tmp_path / "train.py").write_text(FAULT)
    (tmp_path / inputs["junit"]).unlink()
    failing = [executed(script, tmp_path, commands, **variables) for script in (step["run"], hook["entry"])]

    assert [done.returncode for done in passing] == [0, 0], passing
    assert [done.returncode for done in failing] == [1, 1], failing
    assert "::notice title=numdrift::train.py in cpu: identical" in passing[0].stdout
    assert "::error file=train.py,line=" in failing[0].stdout and (tmp_path / "numdrift.xml").exists()
    assert not passing[1].stdout and "beyond-rounding" in failing[1].stdout


def test_the_workflow_has_what_the_action_needs() -> None:
    steps = loaded("workflow.yml")["jobs"]["baseline"]["steps"]
    [checkout] = [step for step in steps if step.get("uses", "").startswith("actions/checkout@")]

    assert checkout["with"]["fetch-depth"] == 0
    assert any("pip install numdrift" in step.get("run", "") for step in steps)
    assert {"baseline"} <= set(loaded("action.yml")["inputs"])
    assert loaded("pre-commit-config.yaml")["repos"][0]["hooks"][0]["pass_filenames"] is False
