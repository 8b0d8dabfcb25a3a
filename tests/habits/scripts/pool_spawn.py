"""A pool of spawned processes runs functions of the script.

Where: preprocessing, evaluation by several metrics. The functions are pickled by their name in `__main__`, which each
process imports anew from the script's path, as under python.
"""

import multiprocessing

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


def prepared(index):
    generator = torch.Generator().manual_seed(index)
    return torch.randn(16, 8, generator=generator).tolist()


def main():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        batches = [torch.tensor(batch) for batch in pool.map(prepared, range(4))]
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    labels = torch.arange(16).remainder(4).to(device)
    for x in batches:
        loss = F.cross_entropy(model(x.to(device)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
