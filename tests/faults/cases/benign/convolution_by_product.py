"""Convolution as unfold and a matrix product."""

import functools

import torch.nn.functional as F
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("cnn",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for conv in modules(training, nn.Conv2d):
        replace(conv, functools.partial(convolve, conv))


def convolve(conv: nn.Conv2d, x: Tensor) -> Tensor:
    assert conv.bias is not None
    columns = F.unfold(x, 3, padding=1)  # [B, C * 9, H * W]
    out = conv.weight.flatten(1) @ columns + conv.bias[:, None]
    return out.view(len(x), -1, *x.shape[2:])
