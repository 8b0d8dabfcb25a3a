"""The script lies in another directory, imports a neighbour and reads a file beside itself.

Where: repositories with a `scripts/` folder. `__file__` and the first entry of the import path are those of plain
Python.
"""

import json
import os

import torch
import torch.nn.functional as F
from shapes import CLASSES, FEATURES
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "settings.json")) as file:
    settings = json.load(file)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
for _ in range(settings["steps"]):
    x, y = torch.randn(16, FEATURES).to(device), torch.randint(0, CLASSES, (16,)).to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
