"""A network whose activations are formulas that may be written in several ways: softplus, lengths; Adam."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WIDTH = 32


class Softplus(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class Length(nn.Module):
    """To length one; far shorter vectors are left short."""

    def forward(self, x: Tensor) -> Tensor:  # [B, D] -> [B, D]
        out: Tensor = x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-6)
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.leaky = nn.Linear(16, WIDTH), nn.LeakyReLU(0.01)
        self.second, self.elu = nn.Linear(WIDTH, WIDTH), nn.ELU()
        self.third, self.softplus, self.length = nn.Linear(WIDTH, WIDTH), Softplus(), Length()
        self.last = nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 4]
        h = self.elu(self.second(self.leaky(self.first(x))))
        h = self.length(self.softplus(8 * self.third(h)))
        out: Tensor = self.last(h)
        return out


torch.manual_seed(0)
inputs = torch.randn(256, 16)
targets = torch.sin(inputs[:, :4] + inputs[:, 4:8])
model = Model().to(DEVICE)
training = Training(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=2e-3),
    batches=in_batches(inputs, targets, size=64, steps=12),
    loss=F.mse_loss,
    step=plain_step,
)
plant(training)
train(training)
