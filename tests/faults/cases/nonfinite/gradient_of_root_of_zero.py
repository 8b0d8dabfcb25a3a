"""The norm of a vector of zeros, written with sqrt: the loss is right and its gradient is not a number."""

from tests.faults.training import Training, parameter
from torch import Tensor

MODELS = ("tanh_sam", "cnn")
EXPECTED = "nonfinite"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    right, bias = training.loss, parameter(training, "last.bias")

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        moved = bias - bias.detach()
        return right(outputs, targets) + 1e-3 * moved.square().sum().sqrt()

    training.loss = loss
