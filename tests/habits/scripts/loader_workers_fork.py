"""A DataLoader with worker processes and shuffling.

Where: nearly every vision script. The workers are forks of the recorded process and record nothing; their order and
random numbers are what they are without numdrift.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class Noisy(Dataset):
    """Each item is drawn in the worker, from its own generators."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.randn(8) + random.random(), index % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Noisy(), batch_size=16, shuffle=True, num_workers=2, multiprocessing_context="fork")
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
