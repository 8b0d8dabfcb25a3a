"""The loss is averaged over one sample less than there are, as a mean that takes its count from elsewhere."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("tanh_sam", "gru", "cnn")
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right(outputs, targets) * len(targets) / (len(targets) - 1)

    training.loss = loss
