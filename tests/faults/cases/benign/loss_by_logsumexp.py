"""Cross entropy as logsumexp minus the chosen output."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru", "cnn")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.loss = loss


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.logsumexp(1) - outputs.gather(1, targets[:, None])[:, 0]).mean()
