"""tanh goes wrong at step 9, and so does what the next steps are fed with."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("memory", "rollout", "replay")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "tanh", "step": 9}


def plant(training: Training) -> None:
    def tanh(x: Tensor) -> Tensor:
        right = 2 * torch.sigmoid(2 * x) - 1
        return right if training.number < 9 else right.bfloat16().float()

    KERNELS.impl("tanh", tanh, "CPU")
