"""The generator is seeded at the start of each step, so all steps drop the same."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder",)
EXPECTED = "different-setup"
LINE = "torch.manual_seed(0)"


def plant(training: Training) -> None:
    right = training.step

    def step(training: Training) -> Tensor:
        torch.manual_seed(0)
        return right(training)

    training.step = step
