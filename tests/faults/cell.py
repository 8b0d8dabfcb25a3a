"""The recurrent cell of the models that are fed with what they made before, and its training."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .optimizers import SGD
from .training import DEVICE, Training, in_batches, plant, train

WIDTH, BATCH = 16, 32
NOTHING = torch.zeros(BATCH, WIDTH, device=DEVICE)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:  # [B, W] each
        h = torch.tanh(self.inner(x) + self.outer(memory))
        return self.last(h), h


def train_cell(step: Callable[[Training], Tensor]) -> None:
    """Train a cell on 14 batches by this step, which says what is fed back."""
    torch.manual_seed(0)
    inputs = torch.randn(256, WIDTH)
    targets = torch.sin(inputs.cumsum(1))
    model = Cell().to(DEVICE)
    training = Training(
        model=model,
        optimizer=SGD(model.parameters(), lr=0.05),
        batches=in_batches(inputs, targets, size=BATCH, steps=14),
        loss=F.mse_loss,
        step=step,
    )
    plant(training)
    train(training)
