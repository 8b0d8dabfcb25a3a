"""Train a small model for --steps steps; where LATE is set, an hour passes in that step, as far as clocks tell."""

import argparse
import os
import time

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device(os.environ.get("DEVICE", "cpu"))
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(32, 4).to(device)
    targets = inputs.sum(1, keepdim=True).tanh()
    now = time.perf_counter
    for step in range(args.steps):
        if step == int(os.environ.get("LATE", "-1")):
            time.perf_counter = lambda: now() + 3600
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()


main()
