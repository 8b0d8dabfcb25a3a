"""Dropout drops 0.12 instead of 0.1; it draws the same numbers."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("autoencoder",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "drop"}


def plant(training: Training) -> None:
    modules(training, nn.Dropout)[0].p = 0.12
