"""Tiny models whose compiled graphs are known by heart."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class TanhMlp(nn.Module):
    """Two layers of equal shape, the second one used twice under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.tied = self.layers[1]
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.full((4,), 0.5))

    def forward(self, shift: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.layers[1](x))
        hidden = torch.tanh(self.layers[0](hidden)) * self.scale
        result: torch.Tensor = self.tied(hidden) + shift
        return result


class Attention(nn.Module):
    """SDPA, layer norm, batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.norm = nn.LayerNorm(8)
        self.batch_norm = nn.BatchNorm1d(4)
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(-1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        normed: torch.Tensor = self.batch_norm(self.dropout(torch.cat([mixed, x], dim=-1)))
        return normed


class Broken(nn.Module):
    """Two pieces: dynamo cannot look at a value."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        result: torch.Tensor = self.second(x)
        return result


class Uncapturable(nn.Module):
    """All that it does is nothing that dynamo looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(n, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5, dim=-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(n, length, width))
        result: torch.Tensor = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return result


def transformer(layers: int, width: int = 64, heads: int = 4) -> nn.Module:
    return nn.Sequential(*(Block(width, heads) for _ in range(layers)))
