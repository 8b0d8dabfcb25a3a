"""The logarithm of a softmax is computed in double, where float32 gives zero: the reference's loss lacks what is below
its digits, and the mode is the one that is closer."""

from tests.faults.training import Training, modules, replace
from torch import nn

MODELS = ("contrast",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "log_probabilities"}


def plant(training: Training) -> None:
    (one,) = modules(training, nn.LogSoftmax)
    replace(one, lambda x: x.double().log_softmax(-1).float())
