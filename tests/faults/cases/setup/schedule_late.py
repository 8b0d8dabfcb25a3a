"""The learning rate follows its schedule one step late."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("transformer", "unet")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    schedule = training.scheduler
    right = training.step

    def step(training: Training) -> Tensor:
        training.scheduler = schedule if training.number > 0 else None
        return right(training)

    training.step = step
