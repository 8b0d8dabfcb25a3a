"""A network that subtracts a running mean before it updates it in place: a buffer is read and then written in each step."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WIDTH = 24


class Centred(nn.Module):
    """Subtract the mean of the batches before this one, and add this batch to it."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:  # [B, D] -> [B, D]
        centred = x - self.mean
        self.mean.mul_(0.75).add_(x.detach().mean(0), alpha=0.25)
        return torch.tanh(centred)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.centred, self.norm = nn.Linear(12, WIDTH), Centred(), nn.LayerNorm(WIDTH)
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, 12] -> [B, 4]
        logits: Tensor = self.last(self.norm(self.centred(self.first(x))))
        return logits


torch.manual_seed(0)
inputs = torch.randn(256, 12)
targets = inputs[:, :4].argmax(1)
model = Network().to(DEVICE)
training = Training(
    model=model,
    optimizer=AdamW(model.parameters(), lr=3e-3),
    batches=in_batches(inputs, targets, size=32, steps=10),
    loss=F.cross_entropy,
    step=plain_step,
)
plant(training)
train(training)
