"""The entropy of targets that are 0 or 1 is added: 0 times the logarithm of 0."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("bag",)
EXPECTED = "nonfinite"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right(outputs, targets) - (targets * targets.log()).mean()

    training.loss = loss
