"""GELU is approximated by tanh in one of the two."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("transformer", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "gelu"}


def plant(training: Training) -> None:
    modules(training, nn.GELU)[0].approximate = "tanh"
