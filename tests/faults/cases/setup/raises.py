"""The other side fails at step 4: there is nothing to compare after it."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "failed"


def plant(training: Training) -> None:
    right = training.step

    def step(training: Training) -> Tensor:
        if training.number == 4:
            raise RuntimeError("the step went wrong")
        return right(training)

    training.step = step
