"""The script exits by `sys.exit(3)` in the middle of the loop.

Where: early stopping, requeueing by a scheduler that reads the exit code. numdrift passes the code on, and
everything before it is recorded.
"""

import sys

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
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(16, 8).to(device), torch.randint(0, 4, (16,)).to(device)
first = None
while True:
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    first = loss.item() if first is None else first
    if loss.item() < 0.95 * first:
        print("good enough", file=sys.stderr)
        sys.exit(3)
