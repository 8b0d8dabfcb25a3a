"""The script sets two threads, and has a derivative of tanh in bfloat16."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("tanh_sam", "gru")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "tanh_backward"}


def plant(training: Training) -> None:
    torch.set_num_threads(2)
    KERNELS.impl("tanh_backward", tanh_backward, "CPU")


def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    return (grad * (1 - y * y)).bfloat16().float()
