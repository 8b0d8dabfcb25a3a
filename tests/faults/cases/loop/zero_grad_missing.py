"""The gradients of earlier steps are never cleared."""

from tests.faults.training import Training, gradients
from torch import Tensor

MODELS = ("cnn", "gru", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    training.step = step


def step(training: Training) -> Tensor:
    loss = gradients(training)
    training.optimizer.step()
    return loss
