"""The first beta is 0.8 instead of 0.9, in the average, what is added to it, and the correction of its bias."""

from typing import Any

from tests.faults.optimizers import AdamW
from tests.faults.training import Training
from torch import Tensor

MODELS = ("fused", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer", "op": "div"}


def plant(training: Training) -> None:
    optimizer = training.optimizer
    assert isinstance(optimizer, AdamW)
    right = optimizer.update

    def update(p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        right(p, gradient, {**group, "betas": (0.8, group["betas"][1])})

    optimizer.update = update  # type: ignore[method-assign]
