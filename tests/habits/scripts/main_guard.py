#!/usr/bin/env python3
"""`if __name__ == "__main__"` with argparse, everything in functions.

Where: everywhere. The script runs as `__main__` with its own `sys.argv`; its arguments follow `--` on the command line.
"""

import argparse
import sys

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc1 = nn.Linear(8, hidden)
        self.fc2 = nn.Linear(hidden, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--no-cuda", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
    model = Net(args.hidden).to(device)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(args.epochs):
        for _ in range(2):
            x, y = torch.randn(16, 8).to(device), torch.randint(0, 4, (16,)).to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print("epoch", epoch, "loss", loss.item())
    print("arguments", sys.argv[1:])


if __name__ == "__main__":
    main()
