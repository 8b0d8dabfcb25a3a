"""The gradients are set to zero between backward and step, so the step goes where momentum and decay lead."""

from tests.faults.training import Training, gradients
from torch import Tensor

MODELS = ("cnn", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.step = step


def step(training: Training) -> Tensor:
    loss = gradients(training)
    training.optimizer.zero_grad(set_to_none=False)
    training.optimizer.step()
    return loss
