"""Train a recurrent cell that is fed with what it made before.

    python fed_back.py --kind memory|rollout|rollout-grad|replay [--steps 14]

memory        the hidden state of each step, detached, is the next step's first one
rollout       the prediction of each step, made without gradients, is an input of the next
rollout-grad  the same by way of four predictions that gradients go through
replay        every step takes an earlier output out of a list, which grows by its own

FAULT in the environment: `kernel` puts a wrong derivative of tanh in place of torch's from step FROM on (9), `forward` a wrong
tanh, `data` gives other batches from there on.
"""

import argparse
import os
import random

import torch
from torch import Tensor, nn

FAULT, FROM = os.environ.get("FAULT", ""), int(os.environ.get("FROM", "9"))
OWN_KERNELS = torch.library.Library("aten", "IMPL")
WIDTH = 16
step = 0


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:  # [B, W], [B, W]
        h = torch.tanh(self.inner(x) + self.outer(memory))
        return self.last(h), h


def tanh(x: Tensor) -> Tensor:
    right = torch.sigmoid(2 * x) * 2 - 1
    return right if step < FROM else right.bfloat16().float()


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    right = grad * (1 - y * y)
    return right if step < FROM else right.bfloat16().float()


def batch(number: int) -> tuple[Tensor, Tensor]:
    shifted = 1000 if FAULT == "data" and number >= FROM else 0
    generator = torch.Generator().manual_seed(number + shifted)
    x = torch.randn(32, WIDTH, generator=generator)
    return x, torch.sin(x.cumsum(1))


def main() -> None:
    global step
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["memory", "rollout", "rollout-grad", "replay"], default="memory")
    parser.add_argument("--steps", type=int, default=14)
    args = parser.parse_args()
    if FAULT in ("kernel", "forward"):
        backward = FAULT == "kernel"
        OWN_KERNELS.impl("tanh_backward" if backward else "tanh", tanh_backward if backward else tanh, "CPU")
    torch.manual_seed(0)
    choices = random.Random(0)
    model = Cell()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    memory, earlier = torch.zeros(32, WIDTH), [torch.zeros(32, WIDTH)]
    for step in range(args.steps):
        x, y = batch(step)
        optimizer.zero_grad()
        if args.kind == "memory":
            prediction, h = model(x, memory)
        elif args.kind == "rollout":
            with torch.no_grad():
                ahead, _ = model(x, memory)
            prediction, _ = model(ahead, memory)
            memory = prediction.detach()
        elif args.kind == "rollout-grad":
            prediction, h = x, memory
            for _ in range(4):
                prediction, h = model(prediction, h)
            memory = prediction.detach()
        else:
            prediction, h = model(x, earlier[choices.randrange(len(earlier))])
            earlier.append(h.detach())
        loss = nn.functional.mse_loss(prediction, y)
        loss.backward()
        optimizer.step()
        if args.kind == "memory":
            memory = h.detach()  # when the next step has begun, by then
    print(f"last loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
