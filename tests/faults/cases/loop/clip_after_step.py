"""Gradients are clipped after the optimizer has used them."""

from tests.faults.training import Training, gradients
from torch import Tensor, nn

MODELS = ("transformer", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.step = step


def step(training: Training) -> Tensor:
    assert training.clip is not None and training.scheduler is not None
    training.optimizer.zero_grad()
    loss = gradients(training)
    training.optimizer.step()
    nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
    training.scheduler.step()
    return loss
