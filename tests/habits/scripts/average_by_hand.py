"""A moving average by hand: `copy.deepcopy(model)` and a loop over the parameters.

Where: BYOL, target networks of reinforcement learning. The copy takes part in the loss, so it is called before the
first step and recorded under the name of its variable.
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
online = Net().to(device)
target = copy.deepcopy(online).requires_grad_(False)
optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
inputs = torch.randn(4, 16, 8)
for x in inputs:
    x = x.to(device)
    wanted = F.normalize(target(x + 0.1), dim=-1)
    loss = 2 - 2 * (F.normalize(online(x), dim=-1) * wanted).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
            slow.mul_(0.95).add_(fast, alpha=0.05)
    print("loss", loss.item())
