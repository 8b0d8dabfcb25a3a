"""An MLP on what rates of about a thousandth add to one, by an exponential that loses no digits; SGD."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WIDTH = 32


class Interest(nn.Module):
    """exp(rate) - 1, in thousandths."""

    def forward(self, rate: Tensor) -> Tensor:
        return torch.expm1(rate) * 1000


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rates, self.interest = nn.Linear(16, WIDTH), Interest()
        self.second, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 4]
        h = torch.tanh(self.interest(self.rates(x) / 1000))
        out: Tensor = self.last(torch.tanh(self.second(h)))
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
