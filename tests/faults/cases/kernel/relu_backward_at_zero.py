"""The derivative of ReLU passes the gradient where the output is zero, so everywhere."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "threshold_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("threshold_backward", threshold_backward, "CPU")


def threshold_backward(grad: Tensor, output: Tensor, threshold: float) -> Tensor:
    return grad * (output >= threshold)
