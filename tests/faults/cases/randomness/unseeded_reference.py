"""A loss of the reference gets noise that nobody seeds, in its step 5 only."""

import os

from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru", "memory")
AGAINST = ("cpu",)
EXPECTED = "nondeterministic"
LINE = "return plain(prediction, targets) * (1 + noise)"


def plant(training: Training) -> None:
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        noise = int.from_bytes(os.urandom(4), "little") * 2.0**-42 if training.number == 5 else 0.0
        return plain(prediction, targets) * (1 + noise)

    training.loss = loss
