"""A deep transformer, trained for some steps: as it is a narrow one, many graph nodes and little to compute.

Attention is written out with a linear layer each for queries, keys and values, so it runs in lazy mode too.
"""

import argparse
import math
import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn

HEADS, WORDS = 4, 50


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:  # [B, T, W]
        h = self.norm1(x)
        q, k, v = heads(self.q(h)), heads(self.k(h)), heads(self.v(h))  # [B, H, T, W / H]
        scores = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(q.shape[3]), dim=3)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(x.shape))
        x = x + self.mlp(self.norm2(x))
        return x


def heads(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], HEADS, x.shape[2] // HEADS).transpose(1, 2)


class Transformer(nn.Module):
    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.token = nn.Linear(WORDS, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(x)
        return logits


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--context", type=int, default=16)
    options = parser.parse_args()
    device = os.environ.get("DEVICE", "cpu")
    torch.manual_seed(0)
    model = Transformer(options.blocks, options.width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    words = torch.randint(WORDS, (options.batch, options.context + 1))
    given, wanted = F.one_hot(words[:, :-1], WORDS).float().to(device), words[:, 1:].flatten().to(device)
    for _ in range(options.steps):
        optimizer.zero_grad()
        F.cross_entropy(model(given).flatten(0, 1), wanted).backward()
        optimizer.step()
