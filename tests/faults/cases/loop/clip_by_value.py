"""Each element of the gradients is clipped instead of their norm."""

from tests.faults.training import Training, gradients
from torch import Tensor, nn

MODELS = ("transformer",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.step = step


def step(training: Training) -> Tensor:
    assert training.clip is not None and training.scheduler is not None
    training.optimizer.zero_grad()
    loss = gradients(training)
    nn.utils.clip_grad_value_(training.model.parameters(), training.clip)
    training.optimizer.step()
    training.scheduler.step()
    return loss
