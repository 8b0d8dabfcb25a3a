"""A training that is ended and started again: what it does not restore is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Numdrift

TRAIN = """
import argparse, os
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--resume")
parser.add_argument("--keep", default="")
options = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
begin = 0
if options.resume and options.keep:
    checkpoint, kept = torch.load(options.resume), options.keep.split(",")
    for name in kept:
        if name in parts:
            parts[name].load_state_dict(checkpoint[name])
    if "random" in kept:
        torch.set_rng_state(checkpoint["random"])
    begin = checkpoint["step"] + 1 if "step" in kept else 0
data = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
for step in range(begin, 8 if begin or not options.resume else 4):
    loss = (model(data[8 * step : 8 * step + 8]) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    os.makedirs("out", exist_ok=True)
    states = {name: part.state_dict() for name, part in parts.items()}
    torch.save(states | {"step": step, "random": torch.get_rng_state()}, "out/last.pt")
"""
AT_THE_END = """import atexit, copy
atexit.register(lambda: torch.save(last, "out/last.pt"))
"""
LATE = TRAIN.replace("for step in", f"{AT_THE_END}for step in").replace(
    """    torch.save(states | {"step": step, "random": torch.get_rng_state()}, "out/last.pt")
""",
    """    last = copy.deepcopy(states | {"step": step, "random": torch.get_rng_state()})
""",
)
"""The script that writes its checkpoint when it ends, and so loses it in a crash."""
EVERYTHING = "model,optimizer,scheduler,random,step"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "kinds", "said"),
    [
        (EVERYTHING, [], "computes what the uninterrupted one does, bit for bit, in all 4 steps"),
        (
            "model,step",
            ["optimizer", "hyper-parameters", "generators"],
            "18 of 18 tensors of the optimizer's state are missing",
        ),
        (
            "model,optimizer,scheduler,random",
            ["data"],
            "step 4 gets another batch, that of step 0, so the data begin anew",
        ),
        ("", None, "the second start restores nothing: its parameters are those before step 0"),
    ],
)
def test_what_a_second_start_does_not_restore_is_named(
    numdrift: Numdrift, tmp_path: Path, keep: str, kinds: list[str] | None, said: str
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = numdrift(
        "resume", "train.py", "--at", "3", "--with", "--resume out/last.pt", "--name", "r", "--json", "found.json",
        "--", "--keep", keep,
    )  # fmt: skip
    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    assert said in found["answer"] and said[1:] in done.stdout, done.stdout + done.stderr
    assert done.returncode == (0 if keep == EVERYTHING else 1)
    if kinds is not None:
        assert [item["kind"] for item in found["not_restored"]] == kinds
        compared = 4 if keep == EVERYTHING else 1  # up to the first step that differs
        assert (found["resumed_at"], found["is_certain"], found["compared"]) == (4, True, compared)
    # the runs have written to folders of their own, and are there
    assert not (tmp_path / "out").exists() and (tmp_path / "runs/r/first/files/out/last.pt").exists()
    assert json.loads((tmp_path / "runs/r/resumption.json").read_text()) == found


def test_a_step_after_which_nothing_follows_is_refused(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    for words, said in {
        ("--at", "9"): "the training has 8 steps, so it cannot be ended after step 9 and go on",
        ("--at", "3", "--max-steps", "4"): "--max-steps 4 ends the training before step 3 could be followed",
    }.items():
        done = numdrift("resume", "train.py", *words)
        assert done.returncode == 2 and said in done.stderr, done.stderr


@pytest.mark.slow
def test_a_crash_loses_what_is_written_at_the_end(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LATE)
    words = ("resume", "train.py", "--at", "3", "--with", "--resume out/last.pt", "--max-steps", "7")

    ended = numdrift(*words, "--name", "e", "--", "--keep", EVERYTHING)
    crashed = numdrift(*words, "--name", "c", "--crash", "--", "--keep", EVERYTHING)

    assert ended.returncode == 0 and "bit for bit" in ended.stdout, ended.stdout + ended.stderr
    assert crashed.returncode == 3 and "No such file or directory: 'out/last.pt'" in crashed.stderr, crashed.stderr
