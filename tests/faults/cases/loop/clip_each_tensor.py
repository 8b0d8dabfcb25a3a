"""Each gradient is clipped by its own norm instead of that of all together."""

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
    for p in training.model.parameters():
        nn.utils.clip_grad_norm_(p, training.clip)
    training.optimizer.step()
    training.scheduler.step()
    return loss
