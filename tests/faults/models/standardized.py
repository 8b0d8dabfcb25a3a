"""An MLP on readings around a hundred thousand, which it standardizes by their variance, with noise from a generator of its own:
SGD."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WIDTH = 64


class Standardized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1e-5)
        return out


class RootMeanSquareNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight
        return out


class Noise(nn.Module):
    """Adds noise that it draws from a generator of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.01 * torch.randn(x.shape, generator=self.stream).to(x.device)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.standardized, self.noise = Standardized(), Noise()
        self.first, self.norm, self.last = nn.Linear(WIDTH, WIDTH), RootMeanSquareNorm(), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:  # [B, 64] -> [B, 2]
        h = self.first(self.noise(self.standardized(x)))
        out: Tensor = self.last(torch.tanh(self.norm(h)))
        return out


torch.manual_seed(0)
inputs = 1e5 + torch.randn(256, WIDTH)
targets = torch.tanh(inputs[:, :2] - 1e5)
model = Model().to(DEVICE)
training = Training(
    model=model,
    optimizer=SGD(model.parameters(), lr=0.02),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=plain_step,
)
plant(training)
train(training)
