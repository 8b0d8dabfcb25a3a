"""The loss is infinite times zero at step 5."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru", "cnn")
EXPECTED = "nonfinite"
CULPRIT = {"phase": "forward", "step": 5}


def plant(training: Training) -> None:
    right = training.loss

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return right(outputs, targets) * (float("nan") if training.number == 5 else 1.0)

    training.loss = loss
