"""Group norm takes the channels in 4 groups instead of 2."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("unet",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "block2.norm"}


def plant(training: Training) -> None:
    modules(training, nn.GroupNorm)[1].num_groups = 4
