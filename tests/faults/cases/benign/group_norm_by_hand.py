"""Group norm written out."""

import functools

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("unet",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for norm in modules(training, nn.GroupNorm):
        replace(norm, functools.partial(normalize, norm))


def normalize(norm: nn.GroupNorm, x: Tensor) -> Tensor:
    groups = x.view(x.shape[0], norm.num_groups, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    whitened = (centred * torch.rsqrt(variance + norm.eps)).view_as(x)
    return whitened * norm.weight[:, None, None] + norm.bias[:, None, None]
