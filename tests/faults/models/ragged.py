"""A tagger of sequences: most batches have eight tokens in a row, every second one has five, so a step comes in two kinds."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import AdamW
from tests.faults.training import DEVICE, Training, plain_step, plant, train

WORDS, TAGS, WIDTH, ROWS = 40, 6, 24, 32
LONG, SHORT = 8, 5


class Neighbours(nn.Module):
    """Each token together with the mean of its sequence."""

    def forward(self, x: Tensor) -> Tensor:  # [B, T, D] -> [B, T, D]
        return torch.tanh(x + x.mean(1, keepdim=True))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.neighbours, self.norm, self.last = Neighbours(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TAGS)

    def forward(self, x: Tensor) -> Tensor:  # [B, T] -> [B * T, TAGS]
        h = self.norm(self.neighbours(self.hidden(self.words(x))))
        logits: Tensor = self.last(h).view(-1, TAGS)
        return logits


torch.manual_seed(0)
model = Tagger().to(DEVICE)
batches = []
for number in range(14):
    texts = torch.randint(0, WORDS, (ROWS, SHORT if number % 2 else LONG))
    tags = (texts + texts.roll(1, 1)) % TAGS
    batches.append([(texts.to(DEVICE), tags.view(-1).to(DEVICE))])
training = Training(
    model=model,
    optimizer=AdamW(model.parameters(), lr=3e-3),
    batches=batches,
    loss=F.cross_entropy,
    step=plain_step,
)
plant(training)
train(training)
