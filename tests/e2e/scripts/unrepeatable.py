"""Train a small network of which some steps are never the same twice, where the environment says so.

    python unrepeatable.py [--steps 20]

PLANT is where the difference comes from: `urandom`, `time`, `generator` (one that nobody seeds), `race` (threads that
add in the order in which they get to it: rounding only). AT is its step, as in `8`, or the first and the last, as in `6-9`.
"""

import argparse
import os
import random
import threading
import time

import numpy as np
import torch
from torch import Tensor, nn

PLANT = os.environ.get("PLANT", "")
FIRST, _, LAST = os.environ.get("AT", "0").partition("-")


class Raced(torch.autograd.Function):
    """The same values; the gradient is added up by threads."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        parts, order = [grad * share for share in np.linspace(0.01, 0.24, 8).tolist()], threading.Lock()
        added, ready = torch.zeros_like(grad), threading.Barrier(len(parts))

        def add(part: Tensor) -> None:
            ready.wait()  # where a thread takes longer to start than it sleeps, they would else add one after the other
            time.sleep(random.SystemRandom().random() * 1e-3)
            with order:
                added.add_(part)

        threads = [threading.Thread(target=add, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return added


def changed(y: Tensor) -> Tensor:
    if PLANT == "urandom":
        return y * (1 + int.from_bytes(os.urandom(4), "little") * 2.0**-42)
    if PLANT == "time":
        return y * (1 + time.time_ns() % 1_000_003 * 1e-9)
    if PLANT == "generator":
        return y + 1e-3 * torch.from_numpy(np.random.default_rng().standard_normal(y.shape)).float()
    raced: Tensor = Raced.apply(y)  # type: ignore[no-untyped-call]
    return raced


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    targets = torch.sin(inputs.sum(1, keepdim=True))
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        optimizer.zero_grad()
        y = model(inputs)
        if PLANT and int(FIRST) <= step <= int(LAST or FIRST):
            y = changed(y)
        nn.functional.mse_loss(y, targets).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
