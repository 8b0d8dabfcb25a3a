"""The derivative of tanh is too large by one part in 8192, which no loss curve of this length shows."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("tanh_sam", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    return grad * (1 - y * y) * (1 + 2**-13)
