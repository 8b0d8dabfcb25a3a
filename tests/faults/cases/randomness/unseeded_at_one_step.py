"""A loss gets noise that nobody seeds, in one step only: the first, the second, some in between, the last, or three of them."""

import os

from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru", "bookkeeping")
MODES = (
    "cpu,env.AT=0", "cpu,env.AT=1", "cpu,env.AT=5", "cpu,env.AT=8", "cpu,env.AT=9", "cpu,env.AT=3-5",
)  # fmt: skip
EXPECTED = "nondeterministic"
LINE = "value = value * (1 + int.from_bytes"


def plant(training: Training) -> None:
    plain = training.loss
    first, _, last = os.environ["AT"].partition("-")

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        value = plain(prediction, targets)
        if int(first) <= training.number <= int(last or first):
            value = value * (1 + int.from_bytes(os.urandom(4), "little") * 2.0**-42)
        return value

    training.loss = loss
