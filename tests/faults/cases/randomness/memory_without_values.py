"""A buffer is made by torch.empty, and a part of what memory happens to hold is added to the inputs."""

import os

import numpy as np
import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "nondeterministic"
LINE = "return x + noise"


def plant(training: Training) -> None:
    plain = training.step

    def step(training: Training) -> Tensor:
        if training.number == 2:
            training.batches[2] = [(with_rest(x), y) for x, y in training.batches[2]]
        return plain(training)

    training.step = step


def with_rest(x: Tensor) -> Tensor:
    noise = torch.empty(x.shape[-1])
    # What was there before is chance; so that it is no chance whether it is, the operating system gives it.
    noise.numpy()[:] = np.frombuffer(os.urandom(x.shape[-1]), dtype=np.uint8) * 1e-5
    return x + noise
