"""Epsilon is added to the second moment before the root instead of after it."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class AdamW(optimizers.AdamW):
    def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        steps = self.state[p]["step"]
        direction: Tensor = first / (1 - beta1**steps) / (second / (1 - beta2**steps) + group["eps"]).sqrt()
        return direction


def plant(training: Training) -> None:
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)
