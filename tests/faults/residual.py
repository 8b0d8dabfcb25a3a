"""A residual network with root mean square norms, which models train in fewer digits than float32."""

from __future__ import annotations

import torch
from torch import Tensor, nn

INPUTS, WIDTH, OUTPUTS = 16, 48, 4


class RootMeanSquareNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:  # [..., D] -> [..., D]
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
        return scaled.to(x.dtype) * self.weight


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.act, self.narrow = nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.narrow(self.act(self.wide(x)))
        return out


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, WIDTH)
        self.norm1, self.branch1 = RootMeanSquareNorm(WIDTH), Branch()
        self.norm2, self.branch2 = RootMeanSquareNorm(WIDTH), Branch()
        self.last = nn.Linear(WIDTH, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 4]
        h = self.first(x)
        h = h + self.branch1(self.norm1(h))
        h = h + self.branch2(self.norm2(h))
        out: Tensor = self.last(h)
        return out
