"""In one step Python's generator is drawn from, and what it gives shifts the inputs."""

import random

from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder", "gru")
MODES = ("cpu", "compile")
EXPECTED = "different-setup"
HIDDEN = True
LINE = "shift = random.gauss(0.0, 1e-2)"


def plant(training: Training) -> None:
    plain = training.step

    def step(training: Training) -> Tensor:
        if training.number == 2:
            shift = random.gauss(0.0, 1e-2)
            training.batches[2] = [(x + shift, y) for x, y in training.batches[2]]
        return plain(training)

    training.step = step
