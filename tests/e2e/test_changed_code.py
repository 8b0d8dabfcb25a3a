"""Modes that differ in the code or the arguments of the script: another revision, another script, other arguments."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from ..conftest import Numdrift

TRAIN = """
import argparse
import torch
from parts import scaled

parser = argparse.ArgumentParser()
parser.add_argument("--accum", type=int, default=1)
accum = parser.parse_args().accum
torch.manual_seed(0)
data = torch.tensor(list(map(float, open("data/x.txt").read().split()))).view(4, 8, 2)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in data:
    optimizer.zero_grad()
    for part in x.chunk(accum):
        loss = scaled(model(part)).square().mean() / accum
        loss.backward()
    optimizer.step()
"""


@pytest.mark.exhaustive
def test_modes_with_other_code_and_other_arguments(
    numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # given a repository in which the last commit changed a factor, and data that git does not track
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.txt").write_text(" ".join(str((7 * n % 13) / 6 - 1) for n in range(64)))
    (tmp_path / ".gitignore").write_text("data/\nruns/\ncache/\n")
    (tmp_path / "train.py").write_text(TRAIN)
    for number, factor in enumerate((1.0, 1.05)):
        (tmp_path / "parts.py").write_text(f"def scaled(x):\n    return x * {factor}\n")
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a change"])[number > 0 :]:
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=tmp_path, check=True)
    # when it is compared with the commit before, with itself in parts of a batch, and with a copy
    (tmp_path / "copy.py").write_text(TRAIN)
    modes = ["before=cpu,git=HEAD~1", "parts=cpu,args+=--accum 4", "other=cpu,script=copy.py"]
    words = [word for mode in ["cpu", *modes] for word in ("--mode", mode)]
    done = numdrift("investigate", "train.py", *words, "--name", "i", "--no-scripts")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD~1"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout.strip()
    assert f"before trains the revision {commit[:12]} of {tmp_path}" in done.stderr
    pairs = {pair["b"]: pair for pair in json.loads((tmp_path / "runs/i/investigation.json").read_text())["pairs"]}
    # then each answer is about what is different in that mode
    assert {name: pair["verdict"] for name, pair in pairs.items()} == {
        "before": "beyond-rounding", "parts": "rounding", "other": "identical",
    }  # fmt: skip
    (culprit,) = pairs["before"]["culprits"]
    assert culprit["op"] == "aten.mul" and "parts.py:2" in culprit["frames"][0], culprit
    assert f"the runs trained different revisions: the files as they are and {commit[:12]}" in pairs["before"]["notes"]
    assert "the script's arguments differ: (none) and --accum 4" in pairs["parts"]["notes"]
    assert json.loads((tmp_path / "runs/i/before/run.json").read_text())["revision"] == commit
    assert json.loads((tmp_path / "runs/i/parts/run.json").read_text())["arguments"] == ["--accum", "4"]
    # when the change is looked for by bisection, the line of the factor is named, in git's own notation
    done = numdrift("bisect", "train.py", "--git", "HEAD~1..HEAD", "--json", tmp_path / "found.json")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["last_good"]["name"] == commit and found["first_bad"]["title"] == "a change"
    assert f"{commit[:10]}:parts.py:2 (scaled)" in done.stdout, done.stdout


def test_what_a_mode_states_about_its_script_is_checked_first(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    for mode, said in {
        "cpu,script=nothing.py": "there is no script",
        "cpu,git=HEAD": "is not in a git repository",
        "cpu,cwd=nowhere": "cwd=nowhere is not a folder",
        "cpu,args+='--x": "a quote is not closed",
    }.items():
        done = numdrift("run", "train.py", "--mode", mode)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not (tmp_path / "runs").exists()
    done = numdrift("run", "-m", "train", "--mode", "cpu,script=train.py")
    assert done.returncode == 2 and "but -m names a module: use one" in done.stderr, done.stderr
