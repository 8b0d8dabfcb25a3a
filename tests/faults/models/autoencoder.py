"""An autoencoder with dropout for readings far from zero, which a layer norm brings to scale first: Adam."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

LEVEL = 100.0  # where the readings lie; they vary by about 1


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.LayerNorm(24)
        self.encode, self.act, self.drop = nn.Linear(24, 48), nn.GELU(), nn.Dropout(0.1)
        self.code, self.decode = nn.Linear(48, 6), nn.Linear(6, 24)

    def forward(self, x: Tensor) -> Tensor:  # [B, 24] -> [B, 24]
        code = self.code(self.drop(self.act(self.encode(self.scale(x)))))
        y: Tensor = self.decode(code)
        return y


torch.manual_seed(0)
readings = LEVEL + 0.1 * torch.randn(256, 24)
for hidden, direction in zip(torch.randn(6, 256, 1), torch.randn(6, 1, 24), strict=True):
    readings += hidden * direction / 6**0.5  # no product of matrices: cases swap those
model = Autoencoder().to(DEVICE)
training = Training(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=2e-3, foreach=True),
    batches=in_batches(readings, readings - LEVEL, size=64, steps=12),
    loss=F.mse_loss,
    step=plain_step,
)
plant(training)
train(training)
