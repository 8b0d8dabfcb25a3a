"""Adam's count of steps stays at 1, as after a reload that loses it: the correction goes on for ever."""

from typing import Any

from tests.faults.training import Training
from torch.optim import Optimizer

MODELS = ("transformer", "autoencoder", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.optimizer.register_step_pre_hook(forget)


def forget(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for state in optimizer.state.values():
        state["step"].zero_()
