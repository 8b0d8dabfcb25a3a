"""A baseline in a repository: trainings pass that compute the same, and the cause of others is named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from ..conftest import Numdrift
from ..processes.forked import numdrift_in

TRAIN = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.sin(torch.arange(6 * 8 * 4.0)).view(6, 8, 4)
for step in range(parser.parse_args().steps):
    loss = (model(data[step]) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SAME = "model(data[step]) - 1"
FAULT = TRAIN.replace(SAME, "model(data[step]) * 1.02 - 1")
ROUNDING = TRAIN.replace(SAME, "torch.cat([model(half) for half in data[step].split(4)]) - 1")
OTHER_BITS = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}

TEST = """
import pytest

@pytest.mark.numdrift
def test_the_training_is_the_same(numdrift):
    numdrift.assert_same_training("train.py", ["--steps", "3"], steps="0,2")
"""


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", "-C", str(folder), *name, *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a script and its baseline, whose revision is the first commit."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "train.py").write_text(TRAIN)
    (folder / ".gitignore").write_text("runs*\n*.json\n*.xml\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    words = ("--to", "baselines/train.zip", "--steps", "0,3", "--", "--steps", "4")
    done = numdrift_in(folder, "baseline", "save", folder / "train.py", *words)
    assert done.returncode == 0 and "baselines/train.zip has the steps 0, 3" in done.stdout, done.stdout + done.stderr
    return folder


@pytest.fixture
def repository(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    return tmp_path


def checked(
    numdrift: Numdrift, folder: Path, number: int, *words: str
) -> tuple[Any, dict[str, Any], ElementTree.Element]:
    report, junit = f"check{number}.json", f"check{number}.xml"
    done = numdrift("baseline", "check", "baselines/train.zip", "--json", report, "--junit", junit, *words)
    assert "Traceback" not in done.stderr, done.stderr
    suites = ElementTree.parse(folder / junit).getroot()
    return done, json.loads((folder / report).read_text()), suites


@pytest.mark.slow
def test_a_check_names_what_has_changed_since_the_baseline(numdrift: Numdrift, repository: Path) -> None:
    done, found, suites = checked(numdrift, repository, 0)
    assert (done.returncode, found["verdict"]) == (0, "identical"), done.stderr
    assert suites.attrib["tests"] == "1" and suites.attrib["failures"] == "0" and not suites.findall(".//failure")

    (repository / "train.py").write_text(ROUNDING)
    done, found, _ = checked(numdrift, repository, 1)
    assert done.returncode == 0 and found["verdict"] in ("identical", "rounding"), done.stdout + done.stderr

    (repository / "train.py").write_text(FAULT)
    line = FAULT.splitlines().index("    loss = (model(data[step]) * 1.02 - 1).square().mean()") + 1
    done, found, suites = checked(numdrift, repository, 2, "--annotations")
    assert (done.returncode, found["verdict"]) == (1, "beyond-rounding")
    assert f"now also executes mul (train.py:{line}): a proven fault from step 0 on" in done.stdout, done.stdout
    assert f"::error file=train.py,line={line},title=numdrift::train.py in cpu: beyond-rounding" in done.stdout
    (failure,) = suites.findall(".//failure")
    assert failure.attrib["type"] == "beyond-rounding" and "also executes mul" in str(failure.text)


@pytest.mark.exhaustive
def test_a_check_where_bits_differ_or_the_baseline_cannot_be_trained(numdrift: Numdrift, repository: Path) -> None:
    # given a machine with other instructions
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OTHER_BITS.items():
            patch.setenv(name, value)
        done = numdrift("baseline", "check", "baselines/train.zip", "--out", "runs2")
    assert done.returncode == 0, done.stdout + done.stderr
    # given a place without the repository
    for path in (repository / ".git").rglob("HEAD"):
        path.unlink()
    (repository / "train.py").write_text(FAULT)
    done, found, _ = checked(numdrift, repository, 3)
    assert (done.returncode, found["verdict"]) == (1, "beyond-rounding")
    (why,) = found["causes"]
    assert why.startswith("no cause was looked for: ") and why.endswith("train.py is not in a git repository"), why


@pytest.mark.slow
def test_what_is_no_baseline_is_refused(numdrift: Numdrift, repository: Path) -> None:
    (repository / "other.py").write_text(TRAIN)
    (repository / "damaged.zip").write_bytes((repository / "baselines/train.zip").read_bytes()[:2000])
    assert numdrift("reference", "train.py", "--to", "reference.zip", "--steps", "0").returncode == 0
    for words, code, said in (
        (["none.zip"], 2, "there is no baseline none.zip; `numdrift baseline save SCRIPT --to none.zip` makes one"),
        (["damaged.zip"], 3, "damaged.zip: is not a bundle, or is incomplete"),
        (["reference.zip"], 2, "reference.zip is no baseline; `numdrift baseline save SCRIPT --to reference.zip`"),
        (["baselines/train.zip", "--script", "other.py"], 2, "is the baseline of train.py, not of other.py"),
    ):
        done = numdrift("baseline", "check", *words)
        assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = numdrift("baseline", "save", "train.py", "--to", "small.zip", "--limit", "0.001")
    assert done.returncode == 2 and "more than 0.001 MiB: keep fewer steps" in done.stderr, done.stderr
    assert not (repository / "small.zip").exists()


@pytest.mark.slow
def test_a_test_of_pytest_keeps_a_training_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "test_training.py").write_text(TEST)

    def tested(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", *words]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)

    without = tested()
    assert without.returncode == 1 and "`pytest --numdrift-update` makes it" in without.stdout, without.stdout
    assert tested("--numdrift-update").returncode == 0 and (tmp_path / "baselines/train.zip").exists()
    assert tested("-m", "numdrift").returncode == 0
    (tmp_path / "train.py").write_text(FAULT)
    changed = tested()
    assert changed.returncode == 1 and "train.py in cpu: beyond-rounding" in changed.stdout, changed.stdout
