"""Train a small network with dropout on noisy batches, drawing otherwise where the environment says so.

    python drawing.py [--steps 6]

DRAW is the draw that is more, less or another one, AT the step of those within steps.
"""

import argparse
import os
import random

import numpy as np
import torch
from torch import Tensor, nn

DRAW, AT = os.environ.get("DRAW", ""), int(os.environ.get("AT", "2"))


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.drop, self.outer = nn.Linear(8, 32), nn.Dropout(0.2), nn.Linear(32, 1)
        self.draws = False

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inner(x))
        if self.draws:
            torch.rand(3)  # draws: module
        out: Tensor = self.outer(self.drop(h))
        return out


def noise(step: int, here: bool) -> float:
    value = random.gauss(0.0, 1e-2)
    if here and DRAW == "python":
        value += random.random() * 0.0  # draws: python
    if not (here and DRAW == "less"):
        value += float(np.random.standard_normal()) * 1e-2  # draws: less
    return value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(1 if DRAW == "seed" else 0)  # draws: seed
    random.seed(0)
    np.random.seed(0)
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    targets = torch.sin(inputs.sum(1, keepdim=True))
    model = Noisy()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        here = step == AT
        optimizer.zero_grad()
        model.draws = here and DRAW == "module"
        rows = torch.randperm(64)[:32]
        if here and DRAW == "loop":
            torch.bernoulli(torch.full((2,), 0.5))  # draws: loop
        nn.functional.mse_loss(model(inputs[rows] + noise(step, here)), targets[rows]).backward()
        if here and DRAW == "again":
            torch.manual_seed(0)  # draws: again
        optimizer.step()


if __name__ == "__main__":
    main()
