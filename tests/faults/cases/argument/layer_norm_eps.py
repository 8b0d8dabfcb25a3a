"""A layer norm was ported with eps 1e-3 instead of 1e-5."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("transformer", "gru")
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_layer_norm"}


def plant(training: Training) -> None:
    modules(training, nn.LayerNorm)[0].eps = 1e-3
