"""The groups state a weight decay that the optimizer does not apply."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class AdamW(optimizers.AdamW):
    def decay(self, p: Tensor, group: dict[str, Any]) -> None:
        pass


def plant(training: Training) -> None:
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)
