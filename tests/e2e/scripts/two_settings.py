"""Convolutions and products, trained without oneDNN or with rounded products where the environment says so."""

import os

import torch
from torch import nn

torch.manual_seed(0)
if os.environ.get("PLAIN"):
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
if os.environ.get("MEDIUM"):
    torch.set_float32_matmul_precision("medium")
convolutions = [nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 16, 3), nn.Tanh(), nn.Flatten()]
model = nn.Sequential(*convolutions, nn.Linear(1024, 64), nn.Tanh(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(6):
    x, y = torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
