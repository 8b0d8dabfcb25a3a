"""A transformer block of the kind of today's language models, all in bfloat16: root mean square norms, rotary angles,
a gated unit; AdamW."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Pair, Training, plain_step, plant, train

WORDS, WIDTH, HEADS, LENGTH = 32, 64, 4, 16
PAIRS = WIDTH // HEADS // 2


class RootMeanSquareNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:  # [..., D] -> [..., D]
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return scaled.to(x.dtype) * self.weight


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the place."""

    def angles(self, device: torch.device) -> Tensor:  # [T, PAIRS]
        frequencies = 100.0 ** (-torch.arange(PAIRS, device=device) / PAIRS)
        return torch.outer(torch.arange(LENGTH, device=device).float(), frequencies)

    def forward(self, x: Tensor) -> Tensor:  # [B, H, T, D / H] -> the same
        angles = self.angles(x.device)
        cosine, sine = angles.cos(), angles.sin()
        left, right = x.float().chunk(2, -1)
        return torch.cat((left * cosine - right * sine, left * sine + right * cosine), -1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.rotary = nn.Linear(WIDTH, 3 * WIDTH, bias=False), Rotary()
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(self.rotary(q), self.rotary(k), v, is_causal=True)
        out: Tensor = self.out(heads.transpose(1, 2).reshape(b, t, d))
        return out


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.norm1, self.attention = RootMeanSquareNorm(), Attention()
        self.norm2, self.gated = RootMeanSquareNorm(), Gated()
        self.norm, self.head = RootMeanSquareNorm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # [B, T] -> [B, T, WORDS]
        h = self.words(x)
        h = h + self.attention(self.norm1(h))
        h = h + self.gated(self.norm2(h))
        logits: Tensor = self.head(self.norm(h))
        return logits.float()


def next_word(logits: Tensor, words: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), words.flatten())


def texts(steps: int) -> list[list[Pair]]:
    start, stride = torch.randint(0, WORDS, (steps * 8, 1)), torch.randint(1, 4, (steps * 8, 1))
    words = (start + stride * torch.arange(LENGTH + 1)) % WORDS
    return [[(part[:, :-1].to(DEVICE), part[:, 1:].to(DEVICE))] for part in words.split(8)]


torch.manual_seed(0)
model = Model().to(DEVICE, torch.bfloat16)
training = Training(
    model=model,
    optimizer=torch.optim.AdamW(model.parameters(), lr=2e-3),
    batches=texts(steps=12),
    loss=next_word,
    step=plain_step,
)
plant(training)
train(training)
