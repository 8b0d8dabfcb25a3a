"""The loss is a hundredth larger, in a model of 16 bits."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("rotary", "half", "scaled", "mixed")
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"op": "mul"}


def plant(training: Training) -> None:
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        return plain(prediction, targets) * 1.01

    training.loss = loss
