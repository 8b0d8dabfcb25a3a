"""A small ResNet on scikit-learn's bundled digits: convolution, batch norm, SGD with momentum.

Three residual blocks of 32, 64 and 128 channels on 8x8 images, minibatches of 128 in a seeded order.

    python reproducers/resnet_digits.py                               # eager, 30 steps
    python reproducers/resnet_digits.py --compile                     # torch.compile, inductor
    DEVICE=lazy python reproducers/resnet_digits.py                   # lazy tensors, TorchScript backend
    DEVICE=xla python reproducers/resnet_digits.py                    # torch_xla, where it is installed
    python reproducers/resnet_digits.py --steps 300 --save cpu.npz    # losses and final parameters
    numdrift run reproducers/resnet_digits.py --modes cpu,compile,lazy
    numdrift run reproducers/resnet_digits.py --modes cpu,xla
"""

import argparse
import importlib
import importlib.util
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._lazy.ts_backend
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

TRAIN_IMAGES = 1437  # 80 % of 1797: the accuracy is measured on the digits of the last writers
BATCH = 128


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a strided 1x1 convolution where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        keeps_shape = before == after and stride == 1
        self.shortcut = nn.Identity() if keeps_shape else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


class ResNet(nn.Module):
    """[B, 1, 8, 8] images to [B, 10] logits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.blocks = nn.Sequential(Block(32, 32, 1), Block(32, 64, 2), Block(64, 128, 2))
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        h = self.blocks(torch.relu(self.norm(self.stem(x))))
        logits: Tensor = self.head(h.mean((2, 3)))
        return logits


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_arguments(argv)
    if args.device == "lazy":
        torch._lazy.ts_backend.init()
    if args.device == "xla":
        importlib.import_module("torch_xla")  # registers the device
    images, labels = digits()
    torch.manual_seed(args.seed)
    model = ResNet().to(args.device)
    if args.compile:
        model.compile()
    losses = train(model, images[:TRAIN_IMAGES], labels[:TRAIN_IMAGES], args)
    model.cpu()
    right = accuracy(model, images[TRAIN_IMAGES:], labels[TRAIN_IMAGES:])
    print(f"final loss {losses[-1]:.6f}, accuracy on unseen digits {right:.4f}")
    if args.save:
        save(args.save, losses, model)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage="%(prog)s [options]", description="Train a ResNet with SGD.")
    parser.add_argument("--steps", "--epochs", type=int, default=30, help="default 30")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate, default 0.05")
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
    if args.steps < 1:
        parser.error(f"--steps must be at least 1, not {args.steps}")
    if not 0 <= args.lr < math.inf:
        parser.error(f"--lr must be at least 0, not {args.lr}")
    if args.device not in devices:
        parser.error(f"--device must be one of {', '.join(devices)}, not {args.device!r}")
    if args.compile and args.device in ("lazy", "xla"):
        parser.error(f"--compile cannot compile {args.device} tensors")
    if args.save and not args.save.parent.is_dir():
        parser.error(f"--save: there is no folder {str(args.save.parent)!r}")
    return args


def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images / 16.0, dtype=torch.float32)
    return pixels.view(-1, 1, 8, 8), torch.tensor(labels)  # values in 0..1


def batches(images: Tensor, labels: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield full batches forever, each epoch in its own seeded order."""
    order = torch.Generator().manual_seed(seed)
    while True:
        for chosen in torch.randperm(len(labels), generator=order).split(BATCH):
            if len(chosen) == BATCH:
                yield images[chosen], labels[chosen]


def train(model: nn.Module, images: Tensor, labels: Tensor, args: argparse.Namespace) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    losses = []
    stream = batches(images, labels, args.seed)
    for step in range(1, args.steps + 1):
        x, y = (tensor.to(args.device) for tensor in next(stream))
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        mark_step(args.device)
        optimizer.step()
        optimizer.zero_grad()
        mark_step(args.device)
        losses.append(loss.item())  # read only now, when no lazy graph needs it any more
        if step % max(1, args.steps // 10) == 0:
            print(f"step {step}: loss {losses[-1]:.6f}")
    return losses


def mark_step(device: str) -> None:
    """End the lazy graph here and run it; do nothing on other devices."""
    if device == "lazy":
        torch._lazy.mark_step()
    if device == "xla":
        importlib.import_module("torch_xla").sync()


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        logits = model.forward(x)  # eager in every mode: compile() does not replace `forward`
    return float((logits.argmax(1) == y).double().mean())


def save(path: Path, losses: list[float], model: nn.Module) -> None:
    arrays: dict[str, Any] = {f"param/{name}": p.detach().numpy() for name, p in model.named_parameters()}
    with path.open("wb") as file:
        np.savez(file, losses=np.array(losses, dtype=np.float64), **arrays)


if __name__ == "__main__":
    main()
