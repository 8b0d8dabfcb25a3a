"""The running statistics move by 0.11 instead of 0.1; neither a loss nor a gradient of the training shows it."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_batch_norm"}


def plant(training: Training) -> None:
    modules(training, nn.BatchNorm2d)[0].momentum = 0.11
