"""A training that compiles by itself, in the way that WAY names, or not at all (`none`). It prints the digits of its losses."""

from __future__ import annotations

import os
from typing import Any

import torch

WAY = os.environ.get("WAY", "step")
BACKEND: dict[str, Any] = {"backend": os.environ["BACKEND"]} if "BACKEND" in os.environ else {}


class Net(torch.nn.Module):
    """Two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 16)
        self.outer = torch.nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.outer(torch.tanh(self.inner(x)))
        return out


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(called(x), y)
    loss.backward()
    optimizer.step()
    return loss


called: Any = model
if WAY == "step":
    step = torch.compile(step, dynamic=False, **BACKEND)
elif WAY == "model":
    called = torch.compile(model, **BACKEND)
elif WAY == "method":
    model.compile(**BACKEND)
for _ in range(3):
    print(float(step(torch.randn(6, 8), torch.randint(0, 4, (6,)))).hex())
