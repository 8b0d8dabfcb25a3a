"""The derivative of tanh is computed in bfloat16 on the reference's side, by a kernel that only its script installs."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("tanh_sam", "gru", "settings")
AGAINST = ("cpu", "compile")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    return (grad * (1 - y * y)).bfloat16().float()
