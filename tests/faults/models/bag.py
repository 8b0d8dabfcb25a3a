"""A bag of words tells two kinds of text apart, gradients accumulated over three micro-batches: RMSprop."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WORDS, LENGTH = 50, 12


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden, self.last = nn.Embedding(WORDS, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:  # [B, LENGTH] -> [B]
        logits: Tensor = self.last(torch.sigmoid(self.hidden(self.words(x).mean(1)))).squeeze(1)
        return logits


torch.manual_seed(0)
texts = torch.randint(0, WORDS, (384, LENGTH))
kinds = (texts < WORDS // 3).sum(1).gt(3).float()
model = Bag().to(DEVICE)
training = Training(
    model=model,
    optimizer=torch.optim.RMSprop(model.parameters(), lr=3e-3),
    batches=in_batches(texts, kinds, size=16, steps=8, parts=3),
    loss=F.binary_cross_entropy_with_logits,
    step=plain_step,
)
plant(training)
train(training)
