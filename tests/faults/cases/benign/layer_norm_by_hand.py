"""Layer norm written out: five operations instead of one."""

import functools

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("transformer", "gru")
MODES = ("cpu", "compile", "lazy")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for norm in modules(training, nn.LayerNorm):
        replace(norm, functools.partial(normalize, norm))


def normalize(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias
