"""Targets of shape [N] against outputs of shape [N, 1]: the loss is taken over all N x N pairs."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("tanh_sam",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets.squeeze(1)).square().mean()

    training.loss = loss
