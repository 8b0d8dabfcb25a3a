"""The derivative of tanh goes wrong at step 9, in trainings that are fed with what they made before or whose scripts keep a state."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("memory", "rollout", "replay", "bookkeeping", "settings")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward", "step": 9}


def plant(training: Training) -> None:
    def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
        right = grad * (1 - y * y)
        return right if training.number < 9 else right.bfloat16().float()

    KERNELS.impl("tanh_backward", tanh_backward, "CPU")
