"""A small GPT in bfloat16: autocast, fused attention, fused AdamW, on words that follow one another by a rule.

    python tests/gpu/trainings/gpt.py --steps 8 [--compile]

FAULT=scale gives the attention another scale.
"""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS = 512
WARM = 5
"""Steps before the clock starts."""

FAULT = os.environ.get("FAULT", "")


class Block(nn.Module):
    """Pre-norm causal attention and MLP, [B, T, W] -> [B, T, W]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.heads = width // 64
        self.scale = 1 / 64 if FAULT == "scale" else 1 / 8

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.contiguous()  # [B, H, T, 64] each
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class GPT(nn.Module):
    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:  # [B, T] -> [B, T, WORDS]
        x = self.word(words) + self.place(torch.arange(words.shape[1], device=words.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def batch(size: int, context: int, generator: torch.Generator) -> Tensor:
    """Return [B, T + 1] words: each is three times the one before it and a little more."""
    words = [torch.randint(WORDS, (size,), generator=generator)]
    for _ in range(context):
        words.append((3 * words[-1] + torch.randint(4, (size,), generator=generator)) % WORDS)
    return torch.stack(words, dim=1)


def main() -> None:
    args = parse_arguments()
    torch.manual_seed(0)
    model = GPT(args.width, args.layers, args.context).to(args.device)
    if args.compile:
        model.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    order = torch.Generator().manual_seed(0)
    batches = [batch(args.batch, args.context, order) for _ in range(4)]
    began = time.perf_counter()
    for step in range(args.steps):
        words = batches[step % len(batches)].to(args.device)
        with torch.autocast(args.device, dtype=torch.bfloat16):
            logits = model(words[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), words[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == WARM:
            print(f"loss {loss.item():.6f}")
            began = time.perf_counter()
    print(f"loss {loss.item():.6f}")
    if args.steps > WARM + 1:
        print(f"a step took {1e3 * (time.perf_counter() - began) / (args.steps - WARM - 1):.4f} ms")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--compile", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
