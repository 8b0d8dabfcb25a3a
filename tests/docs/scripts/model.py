"""Stands for the module of the pages that is not a training: a class, a function that makes one, and what it is called with."""

import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16, bias=False)
        self.last = nn.Linear(16, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # [B, 8] -> [B, 4]
        return torch.log_softmax(self.last(torch.relu(self.first(x))), dim=1)


def make() -> MLP:
    return MLP()


def example_inputs() -> torch.Tensor:
    return torch.rand(5, 8)
