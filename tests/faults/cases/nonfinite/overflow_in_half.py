"""A large intermediate value is kept in float16, whose largest number is 65504."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder", "mixed")
EXPECTED = "nonfinite"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right((outputs * 2.0**20).half().float() / 2.0**20, targets)

    training.loss = loss
