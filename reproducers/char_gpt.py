"""A small character transformer, trained with AdamW on the source text of Python's standard library.

Four pre-norm blocks, 128 wide, 4 heads, context 128, batch 16: 0.8 million parameters, no dropout. Queries, keys and
values each have a linear layer, and attention is written out, so that every op also has a backward in lazy mode. The
text, and therefore the curve, depends on the Python version.

    python reproducers/char_gpt.py                                    # eager, 30 steps
    python reproducers/char_gpt.py --compile                          # torch.compile, inductor
    DEVICE=lazy python reproducers/char_gpt.py                        # lazy tensors, TorchScript backend
    DEVICE=xla python reproducers/char_gpt.py                         # torch_xla, where it is installed
    python reproducers/char_gpt.py --steps 300 --save cpu.npz         # losses and final parameters
    numdrift run reproducers/char_gpt.py --modes cpu,compile,lazy
    numdrift run reproducers/char_gpt.py --modes cpu,xla
"""

import argparse
import importlib
import importlib.util
import math
import os
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._lazy.ts_backend
import torch.nn.functional as F
from torch import Tensor, nn

MODULES = ("argparse", "ast", "inspect", "tarfile", "typing")
BATCH, CONTEXT, WIDTH, HEADS, BLOCKS = 16, 128, 128, 4, 4


class Block(nn.Module):
    """Pre-norm causal attention and MLP, [B, T, W] -> [B, T, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.norm1(x)
        q, k, v = heads(self.q(h)), heads(self.k(h)), heads(self.v(h))  # [B, H, T, W / H]
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS) + mask  # [B, H, T, T]
        mixed = (torch.softmax(scores, dim=3) @ v).transpose(1, 2).reshape(BATCH, CONTEXT, WIDTH)
        x = x + self.out(mixed)
        x = x + self.mlp(self.norm2(x))
        return x


class CharGPT(nn.Module):
    mask: Tensor

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Parameter(0.02 * torch.randn(CONTEXT, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)
        future = torch.full((CONTEXT, CONTEXT), -math.inf).triu(1)  # added to the scores
        self.register_buffer("mask", future, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position
        for block in self.blocks:
            x = block(x, self.mask)
        logits: Tensor = self.head(self.norm(x))  # [B, T, V]
        return logits


def heads(x: Tensor) -> Tensor:
    return x.view(BATCH, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_arguments(argv)
    if args.device == "lazy":
        torch._lazy.ts_backend.init()
    if args.device == "xla":
        importlib.import_module("torch_xla")  # registers the device
    text, vocabulary = encoded_text()
    # Inductor sums the gradient of an embedding with atomic operations, in a different order every time.
    torch.use_deterministic_algorithms(True)
    torch.sqrt(torch.zeros(1))  # AdamW's first sqrt must not race: pytorch/pytorch#188792
    torch.manual_seed(args.seed)
    model = CharGPT(vocabulary).to(args.device)
    if args.compile:
        model.compile()
    losses = train(model, text, args)
    print(f"final loss {losses[-1]:.6f}, guessing gives {math.log(vocabulary):.6f}")
    if args.save:
        save(args.save, losses, model.cpu())


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(usage="%(prog)s [options]", description="Train a transformer with AdamW.")
    parser.add_argument("--steps", "--epochs", type=int, default=30, help="default 30")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate, default 0.001")
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


def encoded_text() -> tuple[Tensor, int]:
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = "".join((folder / f"{module}.py").read_text(encoding="utf-8") for module in MODULES)
    number_of = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([number_of[character] for character in text]), len(number_of)


def train(model: nn.Module, text: Tensor, args: argparse.Namespace) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    order = torch.Generator().manual_seed(args.seed)
    losses = []
    for step in range(1, args.steps + 1):
        starts = torch.randint(len(text) - CONTEXT, (BATCH, 1), generator=order)
        cut = text[starts + torch.arange(CONTEXT + 1)]  # [B, T + 1]
        x, y = cut[:, :-1].contiguous().to(args.device), cut[:, 1:].flatten().to(args.device)
        loss = F.cross_entropy(model(x).flatten(0, 1), y)
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


def save(path: Path, losses: list[float], model: nn.Module) -> None:
    arrays: dict[str, Any] = {f"param/{name}": p.detach().numpy() for name, p in model.named_parameters()}
    with path.open("wb") as file:
        np.savez(file, losses=np.array(losses, dtype=np.float64), **arrays)


if __name__ == "__main__":
    main()
