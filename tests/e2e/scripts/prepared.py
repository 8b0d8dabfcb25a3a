"""A small training whose data is made in many ways: before the loop, in it, and by NumPy. FAULT makes one of them another.

python prepared.py
"""

import os

import numpy as np
import torch
from torch import Tensor, nn

FAULT = os.environ.get("FAULT", "")


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor, mask: Tensor, noise: Tensor) -> Tensor:  # [B, T, 6], [T, T], [B, T, 6]
        h = torch.tanh(self.first(x + noise))
        alike = (h @ h.transpose(-1, -2)).masked_fill(mask, -1e9).softmax(-1)
        out: Tensor = self.last(alike @ h)
        return out


torch.manual_seed(0)
data = torch.sin(torch.arange(32 * 4 * 6).reshape(32, 4, 6) * 0.37)
data = data / data.std(0, correction=0 if FAULT == "std" else 1)
model = Net()
nn.init.normal_(model.first.weight, std=0.3 if FAULT == "init" else 0.2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(6):
    if FAULT == "draw":
        torch.rand(1)
    noise = 0.1 * torch.randn(8, 4, 6)
    mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=0 if FAULT == "mask" else 1)
    gains = np.random.default_rng(1 if FAULT == "numpy" else 0).uniform(0.5, 1.5, 8)
    x = data[8 * (step % 4) : 8 * (step % 4) + 8] * torch.from_numpy(gains).float()[:, None, None]
    optimizer.zero_grad()
    loss = (model(x, mask, noise) - x).square().mean()
    loss.backward()
    optimizer.step()
print(f"last loss {float(loss):.6f}")
