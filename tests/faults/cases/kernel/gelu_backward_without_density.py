"""The derivative of GELU lacks its second term: Phi(x) instead of Phi(x) + x phi(x)."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("transformer", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "gelu_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("gelu_backward", gelu_backward, "CPU")


def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    return grad * 0.5 * (1 + torch.erf(x / 2**0.5))
