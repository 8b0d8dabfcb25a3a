"""The model is evaluated after step 3 and never put back to training: nothing is dropped from then on."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "forward", "module": "drop", "step": 4}


def plant(training: Training) -> None:
    right = training.step

    def step(training: Training) -> Tensor:
        loss = right(training)
        if training.number == 3:
            training.model.eval()
        return loss

    training.step = step
