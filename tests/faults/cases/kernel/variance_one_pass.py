"""The variance of readings around a hundred thousand is the mean of their squares less the square of their mean, in
double, of which float32 keeps too little: the squares are rounded to it."""

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("standardized",)
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "standardized"}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("standardized"), standardized)


def standardized(x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x.square().double().mean(-1, keepdim=True) - mean.double().square()).float()
    return (x - mean) * torch.rsqrt(variance.clamp(min=0.25) + 1e-5)
