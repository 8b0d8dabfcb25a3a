"""GELU is approximated by tanh in every block, in its forward and its backward."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("transformer",)
MODES = ("cpu", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "gelu", "sites": 2}


def plant(training: Training) -> None:
    for act in modules(training, nn.GELU):
        act.approximate = "tanh"
