"""The operating system decides in one step by how much a loss is scaled."""

import os

from tests.faults.training import Training
from torch import Tensor

MODELS = ("tanh_sam",)
EXPECTED = "nondeterministic"
LINE = "value = value * (1 + share * 1e-4)"


def plant(training: Training) -> None:
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        value = plain(prediction, targets)
        if training.number == 1:
            share = int.from_bytes(os.urandom(2), "little") % 251
            value = value * (1 + share * 1e-4)
        return value

    training.loss = loss
