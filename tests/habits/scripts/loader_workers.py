"""A DataLoader with shuffling and worker processes, forked or spawned.

Where: nearly every vision script; workers are spawned in scripts that use CUDA in them, and on macOS and Windows.
Workers are not recorded, and their order and random numbers are those of plain Python. A spawned worker imports the
script by its path, as `__mp_main__`.
"""

import argparse
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
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--start-method", default="fork")
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(
        Noisy(),
        batch_size=16,
        shuffle=True,
        num_workers=args.workers,
        multiprocessing_context=args.start_method,
    )
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
