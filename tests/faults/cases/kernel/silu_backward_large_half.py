"""The derivative of silu is a sixteenth too large, in a model of 16 bits."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("rotary", "half", "scaled")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "backward", "op": "silu_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("silu_backward", silu_backward, "CPU")


def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    wide = x.float()
    s = torch.sigmoid(wide)
    return (grad.float() * s * (1 + wide * (1 - s)) * 1.0625).to(grad.dtype)
