"""Stands for the training script of the pages: two steps an epoch, and nothing of numdrift.

Compiled it keeps every bit: what Inductor computes otherwise, as tanh, is outside of the model. So an investigation of it is short.
As one of several processes it trains on its part of each batch.

python train.py --epochs 10 [--output out] [--config tiny]
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16, bias=False)
        self.last = nn.Linear(16, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [B, 8] -> [B, 4]
        output: torch.Tensor = self.last(torch.relu(self.first(x)))
        return output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--output", default="")
    parser.add_argument("--config", default="tiny")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device(os.environ.get("DEVICE", "cpu"))
    world, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    model: nn.Module = Net().to(device)
    if world > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs = torch.randn(64, 8)
    targets = inputs[:, :4].sin()
    for epoch in range(args.epochs):
        for x, y in zip(inputs.split(32), targets.split(32), strict=True):
            outputs = torch.tanh(model(x[rank::world].to(device)))
            loss = nn.functional.mse_loss(outputs, y[rank::world].to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.6f}")
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
