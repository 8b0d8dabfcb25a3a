"""The generator is seeded by the time in the middle of the training."""

import time

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder",)
MODES = ("cpu", "compile")
EXPECTED = "nondeterministic"
LINE = "torch.manual_seed(time.time_ns() % 2**31)"


def plant(training: Training) -> None:
    right = training.step

    def step(training: Training) -> Tensor:
        if training.number == 2:
            torch.manual_seed(time.time_ns() % 2**31)
        return right(training)

    training.step = step
