"""A bundle by the command line: what was recorded here is opened, checked and replayed elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.harness.tools.bundle.replaying import replay_scripts

from ..conftest import Numdrift

pytestmark = pytest.mark.slow


@pytest.fixture
def packed(numdrift: Numdrift, tiny: Path) -> None:
    taken = numdrift("snapshot", "take", tiny, "--modes", "cpu", "--steps", "1", "--name", "study")
    assert taken.returncode == 0, taken.stderr


@pytest.mark.usefixtures("packed")
def test_it_is_opened_and_replays_elsewhere(numdrift: Numdrift, tmp_path: Path) -> None:
    made = numdrift("bundle", "runs/study")
    assert made.returncode == 0, made.stderr
    assert "Wrote study.numdrift.zip" in made.stdout
    assert "sensitive: snapshots" in made.stderr

    opened = numdrift("bundle", "open", "study.numdrift.zip", "--to", "elsewhere/study", "--replay", "--json", "-")

    assert opened.returncode == 0, opened.stderr
    replayed = json.loads(opened.stdout)["replayed"]
    assert {Path(one["path"]).name.split("-")[1] for one in replayed} >= {"forward", "backward"}
    assert all(one["holds"] and "identical, bit for bit" in one["text"] for one in replayed)
    shown = numdrift("runs", "show", "elsewhere/study/cpu")
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "elsewhere" / "study" / "source" / "tiny.py").is_file()


@pytest.mark.usefixtures("packed")
def test_a_snapshot_that_was_changed_before_is_told_with_exit_code_1(numdrift: Numdrift, tmp_path: Path) -> None:
    snapshot = next((tmp_path / "runs/study/cpu/snapshots").glob("*forward*.safetensors"))
    tensors, facts = read_tensors(snapshot)
    changed = {
        name: value + 1 if value.is_floating_point() and name.startswith("output") else value
        for name, value in tensors.items()
    }
    assert any(not torch.equal(changed[name], tensors[name]) for name in tensors)
    write_tensors(snapshot, changed, facts)

    assert numdrift("bundle", "runs/study").returncode == 0
    opened = numdrift("bundle", "open", "study.numdrift.zip", "--to", "elsewhere", "--replay")

    assert opened.returncode == 1
    assert "has changed since it was written" in opened.stderr
    assert len(opened.stderr.splitlines()) == 1


@pytest.mark.usefixtures("packed")
def test_a_redacted_one_says_that_nothing_in_it_replays(numdrift: Numdrift, tmp_path: Path) -> None:
    made = numdrift("bundle", "runs/study", "--redact", "--leave-out", "source", "--to", "red.zip")
    assert made.returncode == 0
    assert made.stderr == ""

    opened = numdrift("bundle", "open", "red.zip")

    assert "nothing in it can be replayed" in opened.stdout
    assert list((tmp_path / "red").rglob("*.safetensors")) == []
    assert list((tmp_path / "red").rglob("*.digests.json"))


def test_wrong_use_is_one_line(numdrift: Numdrift) -> None:
    for arguments in (
        ["nowhere"],
        ["show", "nowhere.zip"],
        ["open", "nowhere.zip"],
        ["open", "memory://none.zip"],
        ["open", "nowhere.zip", "--replay", "--mode", "gpu"],
    ):
        done = numdrift("bundle", *arguments)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_culprits_script_holds_when_it_shows_what_it_showed(tmp_path: Path) -> None:
    for name, code in (("culprit-1", 0), ("culprit-2", 1)):
        (tmp_path / f"{name}.py").write_text(f"print('shown by {name}')\nraise SystemExit({code})\n")
        write_tensors(tmp_path / f"{name}.safetensors", {"x": torch.ones(1)}, {})

    first, second = replay_scripts(tmp_path)

    assert (first.path, first.holds, first.text) == ("culprit-1.py", True, "shown by culprit-1")
    assert (second.path, second.holds) == ("culprit-2.py", False)
