"""All five layer norms were ported with eps 1e-3 instead of 1e-5."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("transformer",)
MODES = ("cpu", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_layer_norm", "sites": 5}


def plant(training: Training) -> None:
    for norm in modules(training, nn.LayerNorm):
        norm.eps = 1e-3
