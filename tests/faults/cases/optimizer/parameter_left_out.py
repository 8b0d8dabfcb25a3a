"""The last parameter of the list is never stepped."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class SGD(optimizers.SGD):
    def update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        if p is not group["params"][-1]:
            super().update(p, gradient, group)


def plant(training: Training) -> None:
    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)
