"""The mean of a loss is taken over elements that lie transposed."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder", "standardized")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.loss = loss


def loss(predicted: Tensor, target: Tensor) -> Tensor:
    return (predicted - target).square().t().contiguous().t().mean((0, 1))
