"""SAM on a tanh MLP: a training script whose curves once diverged between lazy and compiled mode.

A 64-32-32-10 tanh MLP learns scikit-learn's bundled digits, full batch, one step per epoch, with two
forward and backward passes per step (sam.py). `tanh_backward` is one fused kernel in eager and in lazy mode,
and g * (1 - y*y) in compiled mode.

    python reproducers/sam_tanh.py                                    # eager, 1000 epochs
    python reproducers/sam_tanh.py --compile                          # torch.compile, inductor
    DEVICE=lazy python reproducers/sam_tanh.py                        # lazy tensors, TorchScript backend
    DEVICE=xla python reproducers/sam_tanh.py                         # torch_xla, where it is installed
    python reproducers/sam_tanh.py --epochs 30 --save cpu.npz         # losses and final parameters
    numdrift run reproducers/sam_tanh.py --modes cpu,compile,lazy
    numdrift run reproducers/sam_tanh.py --modes cpu,xla
"""

import argparse
import importlib
import importlib.util
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._lazy.ts_backend
import torch.nn.functional as F
from sam import SAM  # type: ignore[import-not-found]  # beside this file, where a script finds it
from sklearn.datasets import load_digits
from torch import Tensor, nn

TRAIN_IMAGES = 1437  # 80 % of 1797: the accuracy is measured on the digits of the last writers


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_arguments(argv)
    if args.device == "lazy":
        torch._lazy.ts_backend.init()
    if args.device == "xla":
        importlib.import_module("torch_xla")  # registers the device
    images, labels = digits()
    torch.tanh(torch.zeros(1))  # the first tanh must not race: pytorch/pytorch#188792
    torch.manual_seed(args.seed)
    model = TanhMLP().to(args.device)
    if args.compile:
        model.compile()
    losses = train(model, images[:TRAIN_IMAGES].to(args.device), labels[:TRAIN_IMAGES].to(args.device), args)
    model.cpu()
    right = accuracy(model, images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])
    print(f"final loss {losses[-1]:.6f}, accuracy on unseen digits {right:.4f}")
    if args.save:
        save(args.save, losses, model)


class TanhMLP(nn.Module):
    """Three linear layers with tanh between them. A plain nn.Sequential would not work: its `compile()` compiles
    nothing (torch 2.13), because dynamo skips torch's own files."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:  # [N, 64] -> [N, 10]
        logits: Tensor = self.layers(x)
        return logits


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage="%(prog)s [options]", description="Train a tanh MLP with SAM.")
    parser.add_argument("--epochs", type=int, default=1000, help="steps, default 1000")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate, default 0.1")
    parser.add_argument("--rho", type=float, default=0.05, help="SAM's radius, default 0.05")
    parser.add_argument("--device", default=os.environ.get("DEVICE", "cpu"), help="default $DEVICE or cpu")
    parser.add_argument("--compile", action="store_true", help="compile the model with inductor")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write losses and parameters as .npz")
    args = parser.parse_args(argv)
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    devices = ["cpu", "lazy"]
    if accelerator:
        numbers = range(torch.accelerator.device_count())
        devices += [accelerator.type, *(f"{accelerator.type}:{number}" for number in numbers)]
    if importlib.util.find_spec("torch_xla"):
        devices.append("xla")
    if args.epochs < 1:
        parser.error(f"--epochs must be at least 1, not {args.epochs}")
    if not 0 <= args.lr < math.inf:
        parser.error(f"--lr must be at least 0, not {args.lr}")
    if not 0 <= args.rho < math.inf:
        parser.error(f"--rho must be at least 0, not {args.rho}")
    if args.device not in devices:
        parser.error(f"--device must be one of {', '.join(devices)}, not {args.device!r}")
    if args.compile and args.device in ("lazy", "xla"):
        parser.error(f"--compile cannot compile {args.device} tensors")
    if args.save and not args.save.parent.is_dir():
        parser.error(f"--save: there is no folder {str(args.save.parent)!r}")
    return args


def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images / 16.0, dtype=torch.float32), torch.tensor(labels)  # [N, 64] in 0..1, [N]


def train(model: nn.Module, x: Tensor, y: Tensor, args: argparse.Namespace) -> list[float]:
    optimizer = SAM(model.parameters(), torch.optim.SGD, rho=args.rho, lr=args.lr, momentum=0.9)
    losses = []
    for epoch in range(1, args.epochs + 1):
        loss = train_step(model, optimizer, x, y, args.device)
        losses.append(loss.item())
        if epoch % max(1, args.epochs // 10) == 0:
            print(f"epoch {epoch}: loss {losses[-1]:.6f}")
    return losses


def train_step(model: nn.Module, optimizer: SAM, x: Tensor, y: Tensor, device: str) -> Tensor:
    """Take one SAM step; return the loss of its first pass, which no graph needs any more."""
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    mark_step(device)
    optimizer.first_step(zero_grad=True)
    mark_step(device)
    F.cross_entropy(model(x), y).backward()
    mark_step(device)
    optimizer.second_step(zero_grad=True)
    mark_step(device)
    return loss


def mark_step(device: str) -> None:
    """End the lazy graph here and run it; do nothing on other devices."""
    if device == "lazy":
        torch._lazy.mark_step()
    if device == "xla":
        importlib.import_module("torch_xla").sync()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        logits = model.forward(x)  # eager in every mode: compile() does not replace `forward`
    return float((logits.argmax(1) == y).double().mean())


def save(path: Path, losses: list[float], model: nn.Module) -> None:
    arrays: dict[str, Any] = {f"param/{name}": p.detach().numpy() for name, p in model.named_parameters()}
    with path.open("wb") as file:
        np.savez(file, losses=np.array(losses, dtype=np.float64), **arrays)


if __name__ == "__main__":
    main()
