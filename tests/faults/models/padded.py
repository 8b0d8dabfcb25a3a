"""A tagger of texts of different lengths, padded to the longest: AdamW, a schedule, and averaged weights."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Pair, Training, plain_step, plant, train

WORDS, WIDTH, TAGS, ROWS, LENGTH, NOTHING = 32, 24, 5, 16, 12, -100


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        out: Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return out


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.blocks = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Block() for _ in range(2))
        self.last = nn.Linear(WIDTH, TAGS)

    def forward(self, x: Tensor) -> Tensor:  # [B, T] -> [B, T, TAGS]
        h = self.words(x)
        for block in self.blocks:
            h = block(h)
        tags: Tensor = self.last(h)
        return tags


def mean_over_words(outputs: Tensor, tags: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), tags.flatten(), ignore_index=NOTHING)


def texts(steps: int) -> list[list[Pair]]:
    words = torch.randint(0, WORDS, (steps * ROWS, LENGTH))
    lengths = torch.randint(2, LENGTH + 1, (steps * ROWS, 1))
    tags = torch.where(torch.arange(LENGTH) < lengths, words % TAGS, NOTHING)
    return [[(x.to(DEVICE), y.to(DEVICE))] for x, y in zip(words.split(ROWS), tags.split(ROWS), strict=True)]


def averaging_step(training: Training) -> Tensor:
    assert training.averaged is not None
    loss = plain_step(training)
    training.averaged.update_parameters(training.model)
    return loss


torch.manual_seed(0)
model = Tagger().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
training = Training(
    model=model,
    optimizer=optimizer,
    batches=texts(steps=12),
    loss=mean_over_words,
    step=averaging_step,
    scheduler=torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 12),
    averaged=AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9)),
)
plant(training)
train(training)
