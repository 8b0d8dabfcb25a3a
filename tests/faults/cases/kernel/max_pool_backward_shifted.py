"""Max pooling sends the gradient to the element after the largest one."""

from typing import Any

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "max_pool2d_with_indices_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("max_pool2d_with_indices_backward", backward, "CPU")


def backward(
    grad: Tensor, x: Tensor, size: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, places: Tensor
) -> Tensor:
    flat = torch.zeros_like(x).flatten(2)
    after = (places.flatten(2) + 1) % flat.shape[2]
    return flat.scatter_add_(2, after, grad.flatten(2)).view_as(x)
