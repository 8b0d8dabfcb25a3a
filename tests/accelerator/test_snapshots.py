"""A step of the stand-in, kept as snapshots: executed again there, and on the CPU by a torch that does not know the device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Standin

SCRIPT = """
import torch

torch.manual_seed(0)
layer = torch.nn.Linear(8, 4).to("cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    layer(torch.arange(16, device="cuda").view(2, 8) / 16).square().sum().backward()
    optimizer.step()
"""

pytestmark = pytest.mark.slow


def test_a_step_is_executed_again_there_and_on_the_cpu(standin: Standin) -> None:
    (standin.folder / "train.py").write_text(SCRIPT)
    taken = standin("snapshot", "take", "train.py", "--modes", "standin", "--steps", "1", "--json", "-", "--quiet")
    assert taken.returncode == 0, taken.stderr
    snapshots = [Path(one["path"]) for one in json.loads(taken.stdout)["runs"][0]["snapshots"]]
    assert [path.name.partition("-step")[0] for path in snapshots] == ["0-forward", "0-backward", "0-optimizer"]

    for path in snapshots:
        there = standin("snapshot", "replay", path, "--json", "-")
        assert there.returncode == 0, there.stderr
        assert json.loads(there.stdout)["identical"]
        here = standin("snapshot", "replay", path, "--mode", "cpu", "--json", "-")
        assert here.returncode == 0, here.stderr
