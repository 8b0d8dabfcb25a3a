"""`torch.use_deterministic_algorithms(True)`, seeds everywhere, cuDNN's switches.

Where: code that takes reproducibility seriously. The switches stay as the script sets them.
"""

import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def seed_everything(seed):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


seed_everything(17)
torch.use_deterministic_algorithms(True)
device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x = torch.from_numpy(np.random.rand(8, 1, 6, 6).astype("float32")).to(device)
    y = torch.randint(0, 4, (8,)).to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), "deterministic", torch.are_deterministic_algorithms_enabled())
