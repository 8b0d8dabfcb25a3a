"""Two causal transformer blocks with tied embeddings: AdamW, a cosine schedule, clipped gradients."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Pair, Training, plain_step, plant, train

WORDS, WIDTH, HEADS, LENGTH = 40, 32, 4, 16


class Core(nn.Module):
    """softmax(q k^T / sqrt(width)) v, where no place looks ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.causal: Tensor
        self.register_buffer("causal", torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(), persistent=False)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # [B, H, T, D / H] each
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        heads: Tensor = scores.masked_fill(~self.causal, float("-inf")).softmax(-1) @ v
        return heads


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.core, self.out = nn.Linear(WIDTH, 3 * WIDTH), Core(), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        b, t, d = x.shape
        qkv = self.qkv(x).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        heads = self.core(qkv[0], qkv[1], qkv[2])
        out: Tensor = self.out(heads.transpose(1, 2).reshape(b, t, d))
        return out


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.up, self.act, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.down(self.act(self.up(self.norm2(x))))
        return out


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(2)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight
        for embedding in (self.words, self.places):
            nn.init.normal_(embedding.weight, std=0.1)
        self.order: Tensor
        self.register_buffer("order", torch.arange(LENGTH), persistent=False)

    def forward(self, x: Tensor) -> Tensor:  # [B, T] -> [B, T, WORDS]
        h = self.words(x) + self.places(self.order)
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.head(self.norm(h))
        return logits


def next_word(logits: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), words.flatten())


def texts(steps: int) -> list[list[Pair]]:
    # Each word is the one before plus a number of the text's own, so there is something to learn.
    start, stride = torch.randint(0, WORDS, (steps * 8, 1)), torch.randint(1, 4, (steps * 8, 1))
    words = (start + stride * torch.arange(LENGTH + 1)) % WORDS
    return [[(part[:, :-1].to(DEVICE), part[:, 1:].to(DEVICE))] for part in words.split(8)]


torch.manual_seed(0)
model = Transformer().to(DEVICE)
model.head.weight = model.words.weight  # a move to some devices makes two parameters of one
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
training = Training(
    model=model,
    optimizer=optimizer,
    batches=texts(steps=12),
    loss=next_word,
    step=plain_step,
    clip=1.0,
    scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12),
)
plant(training)
train(training)
