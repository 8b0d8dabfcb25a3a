"""An MLP, trained for so many steps that nothing but the steps counts: about 5 ms each on two cores.

python tests/performance/long_training.py --steps 10000 [--compile]
"""

import argparse

import torch
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(64, args.width),
        nn.Tanh(),
        nn.Linear(args.width, args.width),
        nn.Tanh(),
        nn.Linear(args.width, 10),
    )
    trained = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(4096, 64)
    labels = inputs[:, :10].argmax(1)
    for step in range(args.steps):
        rows = torch.randint(len(inputs), (256,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(trained(inputs[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        if step % 1000 == 0:
            print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
