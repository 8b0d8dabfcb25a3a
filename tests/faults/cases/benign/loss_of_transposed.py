"""The mean of a loss is taken over elements that lie transposed."""

import torch.nn.functional as F
from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder", "standardized")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.loss = lambda predicted, target: F.mse_loss(transposed(predicted), transposed(target))


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()
