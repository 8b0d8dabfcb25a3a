"""The generator is seeded once more in the middle of the training."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder",)
MODES = ("cpu", "compile")
EXPECTED = "different-setup"
LINE = "torch.manual_seed(7)"


def plant(training: Training) -> None:
    right = training.step

    def step(training: Training) -> Tensor:
        if training.number == 3:
            torch.manual_seed(7)
        return right(training)

    training.step = step
