"""A layer norm with eps 1e-6 instead of 1e-5, as other frameworks have it: no loss curve shows it."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("transformer", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_layer_norm"}


def plant(training: Training) -> None:
    modules(training, nn.LayerNorm)[0].eps = 1e-6
