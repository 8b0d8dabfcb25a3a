"""The script reads and writes files relative to the working directory.

Where: data in `./data`, results in `./out`. numdrift runs a script in the directory in which it was called itself.
"""

import json
import os

import torch
import torch.nn.functional as F
from torch import nn

with open("elsewhere/settings.json") as file:
    settings = json.load(file)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return self.fc(x)


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
for _ in range(settings["steps"]):
    x, y = torch.randn(16, 8).to(device), torch.randint(0, 4, (16,)).to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
print("in", os.path.basename(os.getcwd()))
