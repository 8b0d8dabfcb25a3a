"""The second moment is stored in bfloat16, where it cannot move by less than one part in 256."""

from typing import Any

from tests.faults.training import Training
from torch.optim import Optimizer

MODELS = ("autoencoder",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.optimizer.register_step_post_hook(shorten)


def shorten(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for state in optimizer.state.values():
        state["exp_avg_sq"].copy_(state["exp_avg_sq"].bfloat16())
