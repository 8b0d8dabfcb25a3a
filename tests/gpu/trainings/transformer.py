"""A transformer in float32 that writes out its attention, its mask and its dropout.

    python tests/gpu/trainings/transformer.py --steps 8 [--compile]

FAULT=eps gives the layer norms another epsilon, FAULT=dropout leaves what was kept as it is, FAULT=mask lets each place
see the next one.
"""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, HEADS, CONTEXT, BATCH, KEPT = 64, 64, 4, 64, 8, 0.9
FAULT = os.environ.get("FAULT", "")
EPS = 1e-2 if FAULT == "eps" else 1e-5


def dropout(x: Tensor) -> Tensor:
    mask = (torch.rand(x.shape, device=x.device) < KEPT).to(x.dtype)
    if FAULT == "dropout":
        return x * mask
    return x * mask / KEPT


class Block(nn.Module):
    """Pre-norm causal attention and MLP, [B, T, W] -> [B, T, W]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=EPS), nn.LayerNorm(WIDTH, eps=EPS)
        self.q, self.k, self.v = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        h = self.norm1(x)
        q, k, v = (linear(h).view(b, t, HEADS, w // HEADS).transpose(1, 2) for linear in (self.q, self.k, self.v))
        seen = torch.ones(t, t, dtype=torch.bool, device=x.device).tril(diagonal=1 if FAULT == "mask" else 0)
        scores = (q @ k.transpose(2, 3) / (w // HEADS) ** 0.5).masked_fill(~seen, float("-inf"))
        mixed = (torch.softmax(scores, dim=3) @ v).transpose(1, 2).reshape(b, t, w)
        x = x + dropout(self.out(mixed))
        return x + dropout(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, words: Tensor) -> Tensor:  # [B, T] -> [B, T, WORDS]
        x = self.word(words) + self.place(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    model = Transformer().to(args.device)
    if args.compile:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    texts = torch.randint(WORDS, (4, BATCH, CONTEXT + 1))
    for step in range(args.steps):
        words = texts[step % len(texts)].to(args.device)
        loss = F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
