"""The optimizer takes a rate that is half as large again, for its decay and for its step, whatever its groups say."""

from typing import Any

from tests.faults.optimizers import AdamW
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer", "op": "mul"}


def plant(training: Training) -> None:
    optimizer = training.optimizer
    assert isinstance(optimizer, AdamW)
    right = optimizer.update

    def update(p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        right(p, gradient, {**group, "lr": 1.5 * group["lr"]})

    optimizer.update = update  # type: ignore[method-assign]
