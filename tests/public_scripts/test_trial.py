"""The driver of public scripts, on a script of our own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from ..processes.forked import numdrift_in
from ..processes.nursery import AS_GUESTS
from . import trial
from .benchmark import read
from .corpus import NAME, read_corpus
from .page import page

SCRIPT = """
import os, sys, time
import torch
torch.manual_seed(int(sys.argv[1]))
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    scale = 1.0
    loss = (net(torch.randn(8, 4)) * scale).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
torch.save(net.state_dict(), "net.pt")
print(os.environ.get("ANOTHER") and time.time_ns())
"""

SCALE = 'scale = 1.01 if os.environ.get("FAULT") == "scaled" else 1.0'


def forked_command_line(
    words: Sequence[str], python: str, folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return numdrift_in(folder, *words, timeout=900, **variables)


def corpus(folder: Path, **more: object) -> Path:
    (folder / "own").mkdir()
    (folder / "own" / "train.py").write_text(SCRIPT, encoding="utf-8")
    fault = {"name": "scaled", "file": "train.py", "old": "scale = 1.0", "new": SCALE, "line": 9}
    described: dict[str, object] = {
        "name": "own",
        "repository": "nobody/none",
        "commit": "0",
        "folder": "own",
        "script": "train.py",
    }
    described |= {"arguments": ["3"], "steps": 3, "writes": ["net.pt"], "faults": [fault], **more}
    (folder / NAME).write_text(json.dumps({"scripts": [described]}), encoding="utf-8")
    return folder


@pytest.mark.exhaustive
def test_a_script_is_held_against_plain_python_and_its_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MODES", ("cpu",))
    monkeypatch.setattr(trial, "ENVIRONMENT", AS_GUESTS)  # without that of plots, with which nothing is forked
    monkeypatch.setattr(trial, "command_line", forked_command_line)
    monkeypatch.chdir(tmp_path)
    [one] = read_corpus(corpus(tmp_path))
    (tmp_path / "scratch").mkdir()
    found = trial.try_script(one, tmp_path, sys.executable, tmp_path / "scratch")
    assert found.bare.status == "complete" and found.runs["cpu"].same and found.runs["cpu"].steps == 3
    assert found.investigated.verdict in ("rounding", "identical")
    assert found.faults["scaled"].right and "train.py:9" in found.faults["scaled"].causes[0]
    # what differs from plain Python, on the screen and in a file, is said
    (tmp_path / "scratch" / "bare" / "net.pt").write_bytes(b"other")
    [log] = (tmp_path / "scratch" / "runs-cpu").rglob("stdout.log")
    _, _, *lines = printed = log.read_bytes().splitlines()  # the same, as was found above
    assert len(lines) == 2
    again = trial.recorded(one, "cpu", sys.executable, tmp_path / "scratch", b"\n".join(printed[:-1]))
    assert again.same is False and again.why == "it prints something else from line 4 of 3 on; net.pt has other bytes"
    # and the page has it all, also when it is read again
    (tmp_path / "kept.jsonl").write_text(json.dumps(asdict(found)) + "\n", encoding="utf-8")
    assert read(tmp_path / "kept.jsonl") == [found]
    whole = replace(found, runs=dict.fromkeys(("cpu", "compile", "lazy"), found.runs["cpu"]))
    assert "| own | scaled | beyond-rounding |" in page([whole], "Measured here")


def test_a_folder_without_a_description_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"corpus\.json does not describe public scripts"):
        read_corpus(tmp_path)
    (tmp_path / NAME).write_text('{"scripts": [{"name": "x", "unknown": 1}]}', encoding="utf-8")
    with pytest.raises(SystemExit, match="unknown"):
        read_corpus(tmp_path)
