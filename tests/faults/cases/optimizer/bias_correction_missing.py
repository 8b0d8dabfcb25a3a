"""Adam's moments start at zero and are not corrected for it."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class AdamW(optimizers.AdamW):
    def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
        direction: Tensor = first / (second.sqrt() + group["eps"])
        return direction


def plant(training: Training) -> None:
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)
