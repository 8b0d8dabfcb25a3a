"""Train a small network whose script keeps a state of its own from step to step.

    python bookkeeping.py --kind average|ema|plateau|curriculum|patience [--steps 16]

average     the loss is weighed by the mean of the last losses, a list
ema         the network learns from its own averaged weights as well, a dict of tensors
plateau     ReduceLROnPlateau
curriculum  the batches become harder as soon as the loss is low enough
patience    the training ends when the loss has not become lower for some steps

FAULT=kernel in the environment puts a wrong derivative of tanh in place of torch's from step FROM on (9).
"""

import argparse
import os

import torch
from torch import Tensor, nn
from torch.func import functional_call

FAULT, FROM = os.environ.get("FAULT", ""), int(os.environ.get("FROM", "9"))
OWN_KERNELS = torch.library.Library("aten", "IMPL")
step = 0


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    right = grad * (1 - y * y)
    return right if step < FROM else right.bfloat16().float()


def batch(number: int, level: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 * level + number)
    x = torch.randn(64, 8, generator=generator) * (1 + level)
    return x, torch.sin(x.sum(1, keepdim=True) / 4)


def main() -> None:
    global step
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["average", "ema", "plateau", "curriculum", "patience"], default="average")
    parser.add_argument("--steps", type=int, default=16)
    args = parser.parse_args()
    kind = args.kind
    if FAULT == "kernel":
        OWN_KERNELS.impl("tanh_backward", tanh_backward, "CPU")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.2)
    losses: list[float] = []
    averaged = {name: p.detach().clone() for name, p in model.named_parameters()}
    level, lowest, waited = 0, float("inf"), 0
    for step in range(args.steps):
        x, y = batch(step, level)
        optimizer.zero_grad()
        prediction = model(x)
        loss = nn.functional.mse_loss(prediction, y)
        if kind == "average" and losses:
            loss = loss / (1 + sum(losses[-4:]) / len(losses[-4:]))
        if kind == "ema":
            with torch.no_grad():
                taught = functional_call(model, averaged, (x,))
            loss = loss + 0.1 * nn.functional.mse_loss(prediction, taught)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for name, p in model.named_parameters():
            averaged[name].lerp_(p.detach(), 0.1)
        if kind == "plateau":
            plateau.step(losses[-1])
        if kind == "curriculum" and losses[-1] < 0.3:
            level = 1
        waited = 0 if losses[-1] < 0.9 * lowest else waited + 1
        lowest = min(lowest, losses[-1])
        if kind == "patience" and waited > 3:
            break
    print(f"{step + 1} steps, last loss {losses[-1]:.6f}, level {level}, lr {optimizer.param_groups[0]['lr']}")


if __name__ == "__main__":
    main()
