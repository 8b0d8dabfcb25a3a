"""Train a model of which lazy tensors do not support all: two kinds of pow, one with the number as its base.

python support.py [--break backend|own|nothing]
"""

import argparse
import hashlib
import os

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 4)

    def forward(self, x: Tensor, broken: str) -> Tensor:
        x = self.inner(x).tanh()
        if broken == "backend":
            x = x.to_sparse().to_dense()  # which no lazy tensor can be
        if broken == "own":
            x = x @ x[:, :2]
        powers: Tensor = x**2 + 2**x
        return powers.mean()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--break", dest="broken", default="nothing")
    broken = parser.parse_args().broken
    torch.manual_seed(0)
    device = os.environ.get("DEVICE", "cpu")
    model = Model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    inputs = torch.randn(5, 2, 3).to(device)
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs, broken).backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
