"""One batch norm is left in evaluation mode: it normalizes by its running statistics."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "norm2"}


def plant(training: Training) -> None:
    modules(training, nn.BatchNorm2d)[1].eval()
