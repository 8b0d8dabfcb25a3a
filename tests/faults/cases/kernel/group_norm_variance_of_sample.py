"""Group norm divides the variance by n - 1 instead of n."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("unet",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "native_group_norm"}


def plant(training: Training) -> None:
    KERNELS.impl("native_group_norm", group_norm, "CPU")


def group_norm(
    x: Tensor, weight: Tensor, bias: Tensor, n: int, c: int, places: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    parts = x.reshape(n, groups, -1)
    variance, mean = torch.var_mean(parts, -1, keepdim=True, correction=1)
    inverse = torch.rsqrt(variance + eps)
    whitened = ((parts - mean) * inverse).view_as(x)
    return whitened * weight[:, None, None] + bias[:, None, None], mean[:, :, 0], inverse[:, :, 0]
