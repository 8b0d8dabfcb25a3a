"""From step 6 on the optimizer is given the gradients of the step before: a pipeline that lags."""

from typing import Any

from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru", "cnn", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer", "step": 6}


def plant(training: Training) -> None:
    parameters = list(training.model.parameters())
    before: list[Tensor] = []

    def lag(*_: Any) -> None:
        now = [p.grad.clone() for p in parameters if p.grad is not None]
        if training.number >= 6:
            for p, gradient in zip(parameters, before, strict=True):
                p.grad = gradient
        before[:] = now

    training.optimizer.register_step_pre_hook(lag)
