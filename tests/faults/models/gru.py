"""A gated recurrent unit, written out, with a layer norm on its states: an AdamW that is written out, too."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WIDTH, LENGTH = 24, 6


class Candidate(nn.Module):
    def forward(self, w: Tensor, u: Tensor, r: Tensor) -> Tensor:  # [B, D] each
        return torch.tanh(w + r * u)


class Cell(nn.Module):
    """h' = (1 - z) n + z h,  n = tanh(W x + r (U h)),  r and z sigmoids of their own W x + U h."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.u, self.candidate = nn.Linear(8, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH), Candidate()

    def forward(self, x: Tensor, h: Tensor) -> Tensor:  # [B, 8], [B, D] -> [B, D]
        # Lazy tensors do not survive chunk and unbind, indexing they do.
        w, u = self.w(x).view(-1, 3, WIDTH), self.u(h).view(-1, 3, WIDTH)
        r, z = torch.sigmoid(w[:, 0] + u[:, 0]), torch.sigmoid(w[:, 1] + u[:, 1])
        out: Tensor = (1 - z) * self.candidate(w[:, 2], u[:, 2], r) + z * h
        return out


class GRU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm, self.last = Cell(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 8] -> [B, 4]
        h = x.new_zeros(x.shape[0], WIDTH)
        for time in range(LENGTH):
            h = self.norm(self.cell(x[:, time], h))
        logits: Tensor = self.last(h)
        return logits


torch.manual_seed(0)
inputs = torch.randn(256, LENGTH, 8)
targets = inputs[:, :, :4].sum(1).argmax(1)
model = GRU().to(DEVICE)
training = Training(
    model=model,
    optimizer=AdamW(model.parameters(), lr=3e-3, weight_decay=0.1),
    batches=in_batches(inputs, targets, size=32, steps=10),
    loss=F.cross_entropy,
    step=plain_step,
)
plant(training)
train(training)
