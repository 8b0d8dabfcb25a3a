"""A recurrent cell over one long sequence: its hidden state, detached, is the first one of the next step."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.optimizers import SGD
from tests.faults.training import DEVICE, Training, in_batches, plant, train

WIDTH, BATCH = 16, 32
memory = torch.zeros(BATCH, WIDTH, device=DEVICE)


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:  # [B, W] each
        h = torch.tanh(self.inner(x) + self.outer(memory))
        return self.last(h), h


def remembering_step(training: Training) -> Tensor:
    global memory
    [(inputs, targets)] = training.batches[training.number]
    training.optimizer.zero_grad()
    prediction, h = training.model(inputs, memory)
    loss = training.loss(prediction, targets)
    loss.backward()
    training.optimizer.step()
    memory = h.detach()
    return loss.detach()


torch.manual_seed(0)
inputs = torch.randn(256, WIDTH)
targets = torch.sin(inputs.cumsum(1))
model = Cell().to(DEVICE)
training = Training(
    model=model,
    optimizer=SGD(model.parameters(), lr=0.05),
    batches=in_batches(inputs, targets, size=BATCH, steps=14),
    loss=F.mse_loss,
    step=remembering_step,
)
plant(training)
train(training)
