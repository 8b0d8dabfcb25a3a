"""A network that chooses: the bin of a reading, the place of a time, the expert of a row and its three largest features; SGD."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WIDTH, EXPERTS, LARGEST = 16, 4, 3


class Bins(nn.Module):
    """A row for the bin that a reading falls into: readings are multiples of 1 / 4, and so are some edges."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, WIDTH)
        self.edges: Tensor
        self.register_buffer("edges", torch.linspace(-1.75, 1.75, 8))

    def which(self, x: Tensor) -> Tensor:
        return torch.bucketize(x.contiguous(), self.edges)

    def forward(self, x: Tensor) -> Tensor:  # [B] -> [B, D]
        row: Tensor = self.table(self.which(x))
        return row


class Places(nn.Module):
    """A row for the whole part of a time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(17, WIDTH)

    def whole(self, x: Tensor) -> Tensor:
        return torch.floor(4 * x).long()

    def forward(self, x: Tensor) -> Tensor:  # [B] -> [B, D]
        row: Tensor = self.table((self.whole(x) + 8).clamp(0, 16))
        return row


class Experts(nn.Module):
    """Each row has the expert for which it votes most."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, WIDTH) / 4)

    def chosen(self, votes: Tensor) -> Tensor:
        return votes.argmax(-1)

    def forward(self, votes: Tensor, h: Tensor) -> Tensor:  # [B, E], [B, D] -> [B, D]
        return h * self.weight[self.chosen(votes)]


class Sparse(nn.Module):
    """Leaves the largest features of each row."""

    def kept(self, x: Tensor) -> Tensor:
        return torch.topk(x, LARGEST).indices

    def forward(self, x: Tensor) -> Tensor:  # [B, D] -> [B, D]
        mask = torch.zeros_like(x).scatter(-1, self.kept(x.detach()), 1.0)
        return x * mask


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bins, self.places, self.experts, self.sparse = Bins(), Places(), Experts(), Sparse()
        self.first, self.last = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:  # [B, 8] -> [B, 2]
        h = torch.tanh(self.first(x) + self.bins(x[:, 0]) + self.places(x[:, 1]))
        out: Tensor = self.last(self.sparse(self.experts(x[:, 2:6], h)) + h)
        return out


torch.manual_seed(0)
inputs = torch.randn(256, 8).mul(4).round() / 4
targets = torch.stack((inputs[:, 0] * inputs[:, 1], torch.sin(inputs[:, 2])), 1)
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
