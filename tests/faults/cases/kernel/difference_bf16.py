"""A difference is given in bfloat16: less than the rounding of its large inputs makes, and far more than its own."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("standardized",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "op": "sub"}


def plant(training: Training) -> None:
    KERNELS.impl("sub.Tensor", difference, "CPU")


def difference(x: Tensor, y: Tensor, *, alpha: float = 1) -> Tensor:
    return torch.add(x, y, alpha=-alpha).bfloat16().float()
