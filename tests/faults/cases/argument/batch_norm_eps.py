"""A batch norm has TensorFlow's eps, 1e-3, instead of 1e-5."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_batch_norm"}


def plant(training: Training) -> None:
    modules(training, nn.BatchNorm2d)[1].eps = 1e-3
