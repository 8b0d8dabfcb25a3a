"""A training that is watched computes on the device that its script has chosen."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Standin

pytestmark = pytest.mark.slow

SCRIPT = """
import standin_device
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)).to("standin")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = model(torch.randn(8, 4, device="standin")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item().hex(), loss.device)
"""


def events(standin: Standin, kind: str) -> list[dict[str, Any]]:
    lines = (standin.folder / "runs/train/watch/journal/events.jsonl").read_text().splitlines()
    return [event for line in lines if (event := json.loads(line))["event"] == kind]


def test_a_watched_training_stays_on_its_device(standin: Standin) -> None:
    (standin.folder / "train.py").write_text(SCRIPT)
    bare = standin.python("train.py")
    done = standin("watch", "--overhead", "100%", "train.py")

    assert (done.returncode, done.stdout, done.stderr) == (0, bare.stdout, ""), done.stderr
    assert "standin:0" in bare.stdout
    printed = [float.fromhex(line.split()[0]) for line in bare.stdout.splitlines()]
    assert [step["losses"] for step in events(standin, "step")] == [[loss] for loss in printed]
    assert json.loads((standin.folder / "runs/train/watch/run.json").read_text())["spec"] == "watch=standin"
    assert (standin.folder / "runs/train/watch/journal/digests.bin").stat().st_size > 6 * 4 * 64
