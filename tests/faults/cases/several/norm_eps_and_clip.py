"""A layer norm has another eps, and gradients are clipped to another norm."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("transformer",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = ({"phase": "forward", "op": "native_layer_norm"}, {"phase": "optimizer"})


def plant(training: Training) -> None:
    modules(training, nn.LayerNorm)[0].eps = 1e-3
    training.clip = 0.9
