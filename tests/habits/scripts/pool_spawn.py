"""A pool of spawned processes runs functions of the script, which imports torch only afterwards.

Where: preprocessing, evaluation by several metrics. The functions are pickled by their name in `__main__`; each
process imports that from the script's path, as under plain Python.
"""

import multiprocessing
import random


def prepared(index):
    numbers = random.Random(index)
    return [[numbers.gauss(0, 1) for _ in range(8)] for _ in range(16)]


def main():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        batches = pool.map(prepared, range(4))

    import torch
    import torch.nn.functional as F
    from torch import nn

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    labels = torch.arange(16).remainder(4).to(device)
    for batch in batches:
        loss = F.cross_entropy(model(torch.tensor(batch).to(device)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
