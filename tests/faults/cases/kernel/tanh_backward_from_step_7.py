"""The derivative of tanh goes wrong at step 7, as a kernel does that a tuner changes while it runs."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("tanh_sam", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward", "step": 7}


def plant(training: Training) -> None:
    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        right = grad * (1 - y * y)
        return right if training.number < 7 else right.bfloat16().float()

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")
