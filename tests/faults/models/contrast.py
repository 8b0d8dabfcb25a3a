"""Two encoders learn which of their inputs belong together: a contrastive loss with logits of a hundred; Adam."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

TEMPERATURE = 0.01


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.last = nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:  # [B, 16] -> [B, 16], of length 1
        return F.normalize(self.last(self.act(self.first(x))), dim=-1)


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = Encoder(), Encoder()
        self.log_probabilities = nn.LogSoftmax(-1)

    def forward(self, x: Tensor) -> Tensor:  # [B, 2, 16] -> [B, B], logarithms of probabilities
        scores = self.left(x[:, 0]) @ self.right(x[:, 1]).t() / TEMPERATURE
        said: Tensor = self.log_probabilities(scores)
        return said


def own_pair(said: Tensor, which: Tensor) -> Tensor:
    return F.nll_loss(said, which)


torch.manual_seed(0)
ones = torch.randn(256, 16)
inputs = torch.stack((ones, ones + 0.02 * torch.randn(256, 16)), 1)
model = Pairs().to(DEVICE)
model.right.load_state_dict(model.left.state_dict())  # as after some training: most pairs are told well
batches = in_batches(inputs, torch.zeros(256), size=32, steps=12)
training = Training(
    model=model,
    optimizer=torch.optim.Adam(model.parameters(), lr=1e-3),
    batches=[[(x, torch.arange(len(x), device=x.device)) for x, _ in parts] for parts in batches],
    loss=own_pair,
    step=plain_step,
)
plant(training)
train(training)
