"""The changes that should not matter to a training: those that do are named, with their cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Numdrift

TRAIN = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return x + torch.tanh(self.norm(self.linear(x)))

torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.randn(48, 8)
for batch in torch.utils.data.DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    (model(batch) - 1).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_change_that_matters_is_named_with_its_cause(numdrift: Numdrift, tmp_path: Path) -> None:
    # given a training with batch norm, whose statistics a recomputed block updates twice
    (tmp_path / "train.py").write_text(TRAIN)
    changes = ("checkpointing", "optimizer-fused", "workers-2", "clipping-loop")

    done = numdrift(
        "neutral", "train.py", *(word for name in changes for word in ("--change", name)), "--json", "found.json"
    )

    found: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    assert done.returncode == 1, done.stdout + done.stderr
    outcomes = {change["name"]: change["outcome"] for change in found["changes"]}
    assert outcomes.pop("optimizer-fused") in ("identical", "rounding")  # on some processors, it has the same bits
    assert outcomes == {
        "clipping-loop": "nothing to change",
        "checkpointing": "beyond-rounding",
        "workers-2": "identical",
    }
    assert found["answer"] == "1 of the 3 changes matters to this training: checkpointing"
    assert "1 of the 3 changes matters to this training: checkpointing." in done.stdout
    assert "native_batch_norm" in done.stdout
    assert found == json.loads((tmp_path / "runs/train-neutral/neutral.json").read_text())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--change", "optimiser-fused"], "there is no change 'optimiser-fused'; did you mean 'optimizer-fused'?"),
        (["--change", "without-cudnn"], "the change 'without-cudnn' has no effect in mode cpu; leave it out"),
        (["--change", "threads-1", "--mode", "cpu,threads=1"], "has no effect in mode cpu,threads=1; leave it out"),
        (["--mode", "lazy", "--change", "compile"], "the change 'compile' has no effect in mode lazy; leave it out"),
    ],
)
def test_a_change_that_cannot_be_tried_is_refused(
    numdrift: Numdrift, tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)

    done = numdrift("neutral", "train.py", *words)

    assert done.returncode == 2
    assert said in done.stderr
