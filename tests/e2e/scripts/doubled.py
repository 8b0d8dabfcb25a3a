"""Train a network that doubles what it computes: `x * 2`, the factor an int, of which a kernel of `mul` is given a number.

python doubled.py [--steps 12]
"""

import argparse

import torch
from torch import Tensor, nn


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 8] -> [B, 1]
        y: Tensor = self.last(torch.sigmoid(self.first(x) * 2) * 0.7)
        return y


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    model = Doubled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(args.steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), torch.sin(inputs.sum(1, keepdim=True))).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
