"""The velocity is subtracted from the gradient instead of added."""

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class SGD(optimizers.SGD):
    def velocity(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        return super().velocity(p, gradient, -momentum)


def plant(training: Training) -> None:
    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)
