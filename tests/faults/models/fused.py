"""Two blocks of fused attention of one product, leaky ReLUs, a factor whose gradient is written out: AdamW written out."""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, plain_step, plant, train

WIDTH, HEADS, LENGTH = 16, 2, 8


class Factor(torch.autograd.Function):
    """x times a number, and the gradient times the same."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


class Scaled(nn.Module):
    factor = 0.75

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Factor.apply(x, self.factor)  # type: ignore[no-untyped-call]
        return out


class Attention(nn.Module):
    scale = 0.35

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, d // HEADS).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(q, k, v, scale=self.scale)
        out: Tensor = self.out(heads.transpose(1, 2).reshape(b, t, d))
        return out


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.up, self.act, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.LeakyReLU(0.1), nn.Linear(2 * WIDTH, WIDTH)
        self.scaled = Scaled()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.scaled(self.down(self.act(self.up(self.norm2(x)))))
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(4, WIDTH), nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 4] -> the same
        h = self.first(x)
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(self.norm(h))
        return out


torch.manual_seed(0)
inputs = torch.randn(12, 16, LENGTH, 4)
training = Training(
    model=(model := Model().to(DEVICE)),
    optimizer=AdamW(model.parameters(), lr=2e-3, weight_decay=0.05),
    batches=[[(x.to(DEVICE), x.cumsum(1).tanh().to(DEVICE))] for x in inputs],
    loss=F.mse_loss,
    step=plain_step,
)
plant(training)
train(training)
