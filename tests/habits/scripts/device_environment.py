"""The device comes from an environment variable.

Where: scripts that a cluster's launcher starts. A script that reads `DEVICE` finds the mode's device there, and
needs no redirection.
"""

import os

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device(os.environ.get("DEVICE", "cpu"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
