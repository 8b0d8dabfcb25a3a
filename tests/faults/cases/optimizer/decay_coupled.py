"""Weight decay is added to the gradient, as in Adam, where AdamW shrinks the weights."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class AdamW(optimizers.AdamW):
    def update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        super().update(p, gradient + group["weight_decay"] * p, group)

    def decay(self, p: Tensor, group: dict[str, Any]) -> None:
        pass


def plant(training: Training) -> None:
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)
