"""Gradients are cleared for each micro-batch, so only the last one counts."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("bag",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    training.step = step


def step(training: Training) -> Tensor:
    batches = training.batches[training.number]
    for inputs, targets in batches:
        training.optimizer.zero_grad()
        loss = training.loss(training.model(inputs), targets) / len(batches)
        loss.backward()
    training.optimizer.step()
    return loss.detach()
