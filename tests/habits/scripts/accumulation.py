"""Gradients of several micro-batches are accumulated before each update.

Where: models whose batch does not fit in memory. One `optimizer.step()` is one step. It has a loss for each
backward: the first counts as the loss of the step, and `numdrift compare` compares all of them.
"""

import torch
import torch.nn.functional as F
from torch import nn

ACCUMULATE = 3
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(9, 8, 8), torch.randint(0, 4, (9, 8))
for index, (x, y) in enumerate(zip(inputs, labels, strict=True)):
    loss = F.cross_entropy(model(x.to(device)), y.to(device)) / ACCUMULATE
    loss.backward()
    print("micro loss", loss.item())
    if (index + 1) % ACCUMULATE == 0:
        optimizer.step()
        optimizer.zero_grad()
