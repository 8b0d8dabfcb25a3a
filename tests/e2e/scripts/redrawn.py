"""A classifier with dropout under AdamW, five steps: in lazy mode AdamW's lerp falls back to the CPU."""

import os

import torch
from torch import nn

DEVICE = os.environ.get("DEVICE", "cpu")

torch.manual_seed(0)
x, y = torch.randn(32, 8).to(DEVICE), torch.randint(0, 4, (32,)).to(DEVICE)
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Dropout(0.25), nn.Linear(16, 4)).to(DEVICE)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
for _ in range(5):
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()
