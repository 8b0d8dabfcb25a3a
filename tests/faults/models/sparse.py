"""A bag of words with sparse gradients: SGD updates only the rows of the embedding that a batch has read."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.training import DEVICE, Training, in_batches, plain_step, plant, train

WORDS, LENGTH, WIDTH = 200, 12, 24


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, WIDTH, mode="sum", sparse=True)
        self.hidden, self.norm, self.last = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:  # [B, LENGTH] -> [B, 3]
        logits: Tensor = self.last(self.norm(torch.tanh(self.hidden(self.words(x)))))
        return logits


torch.manual_seed(0)
texts = torch.randint(0, WORDS, (256, LENGTH))
kinds = texts.sum(1) % 3
model = Bag().to(DEVICE)
training = Training(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
    batches=in_batches(texts, kinds, size=32, steps=10),
    loss=F.cross_entropy,
    step=plain_step,
)
plant(training)
train(training)
