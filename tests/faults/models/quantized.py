"""An MLP whose hidden values pass through 16 steps of a quantizer, beside a table that is looked up by the hour: SGD."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

STEP = 0.125


class Quantizer(nn.Module):
    """To the nearest multiple of STEP; its gradient is that of a clamp."""

    def whole(self, scaled: Tensor) -> Tensor:
        return torch.round(scaled)

    def forward(self, x: Tensor) -> Tensor:
        clamped = x.clamp(-1, 1)
        return clamped + (self.whole(clamped.detach() / STEP) * STEP - clamped.detach())


class Hours(nn.Module):
    """A row for each part of a day, of a time in hours."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(241, 32)

    def part(self, hours: Tensor) -> Tensor:
        return torch.floor_divide(hours, 0.1)

    def forward(self, hours: Tensor) -> Tensor:  # [B] -> [B, 32]
        row: Tensor = self.table(self.part(hours).long())
        return row


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.quantizer, self.hours = nn.Linear(8, 32), Quantizer(), Hours()
        self.last = nn.Linear(32, 2)

    def forward(self, x: Tensor) -> Tensor:  # [B, 9] -> [B, 2]
        h = self.quantizer(self.first(x[:, :8])) + self.hours(x[:, 8])
        out: Tensor = self.last(torch.tanh(h))
        return out


torch.manual_seed(0)
inputs = torch.cat((torch.randn(256, 8).mul(4).round() / 4, torch.randint(0, 240, (256, 1)) / 10), 1)
targets = torch.stack((inputs[:, 0] * inputs[:, 1], torch.sin(inputs[:, 8] / 4)), 1)
model = Model()
with torch.no_grad():
    model.first.weight.copy_(model.first.weight.mul(4).round() / 4)  # so that some values lie on the edge of a step
    model.first.bias.zero_()
training = Training(
    model=model.to(DEVICE),
    optimizer=SGD(model.parameters(), lr=0.02),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=plain_step,
)
plant(training)
train(training)
