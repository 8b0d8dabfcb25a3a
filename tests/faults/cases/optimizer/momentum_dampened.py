"""The gradient enters the velocity with 1 - momentum."""

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class SGD(optimizers.SGD):
    def velocity(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        return super().velocity(p, (1 - momentum) * gradient, momentum)


def plant(training: Training) -> None:
    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)
