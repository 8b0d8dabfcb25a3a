"""An MLP in float32 that rounds on purpose: hidden values to bfloat16 and back, and others to multiples of 1 / 4 by a
large number that is added and taken away; SGD."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

QUARTERS = 3 * 2.0**20  # where the spacing of float32 is a quarter


class Narrow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.bfloat16).to(torch.float32)


class Quarters(nn.Module):
    """To multiples of 1 / 4; the gradient passes."""

    def forward(self, x: Tensor) -> Tensor:
        return (x + QUARTERS) - QUARTERS


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.narrow = nn.Linear(16, 32), Narrow()
        self.second, self.quarters = nn.Linear(32, 32), Quarters()
        self.last = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 4]
        h = torch.tanh(self.narrow(torch.tanh(self.first(x))))
        out: Tensor = self.last(torch.tanh(self.quarters(torch.tanh(self.second(h)))))
        return out


torch.manual_seed(0)
inputs = torch.randn(256, 16)
targets = torch.sin(inputs[:, :4] + inputs[:, 4:8])
model = Model().to(DEVICE)
training = Training(
    model=model,
    optimizer=SGD(model.parameters(), lr=0.05),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=plain_step,
)
plant(training)
train(training)
