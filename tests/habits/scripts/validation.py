"""The model is evaluated between the steps: `model.eval()`, `no_grad`, and back to training.

Where: every script with a validation set. An evaluation belongs to no step; the statistics of batch norm do.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(F.relu(self.norm(self.fc1(x))))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
held_out, answers = torch.randn(32, 8).to(device), torch.randint(0, 4, (32,)).to(device)
for x, y in zip(inputs, labels, strict=True):
    model.train()
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        logits = model(held_out)
        right = (logits.argmax(-1) == answers).sum().item()
    print("loss", loss.item(), "validation", F.cross_entropy(logits, answers).item(), right)
