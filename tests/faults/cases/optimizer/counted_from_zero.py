"""Steps are counted from 0 where the correction divides by 1 - beta^step: the second step is taken for the first."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class AdamW(optimizers.AdamW):
    def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
        steps = self.state[p]["step"]
        self.state[p]["step"] = max(1, steps - 1)
        direction = super().direction(p, first, second, group)
        self.state[p]["step"] = steps
        return direction


def plant(training: Training) -> None:
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)
