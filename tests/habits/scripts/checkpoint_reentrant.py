"""Activation checkpointing, the reentrant kind: `use_reentrant=True`.

Where: older code and libraries. Its backward runs the forward again and a backward inside of the backward: that
inner one starts from no loss of the script's, and the modules called there are no new models.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

device = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x)


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
