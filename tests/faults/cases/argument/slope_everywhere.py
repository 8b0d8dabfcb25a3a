"""The leaky ReLUs of both blocks have another slope, and so have their backwards."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("fused",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "leaky_relu", "sites": 2}


def plant(training: Training) -> None:
    for act in modules(training, nn.LeakyReLU):
        act.negative_slope = 0.11
