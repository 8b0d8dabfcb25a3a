"""An inverse square root is too low by a millionth, always to the same side."""

from typing import Any

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("standardized",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "norm"}


def plant(training: Training) -> None:
    norm = training.model.get_submodule("norm")
    replace(norm, lambda x: normalize(norm, x))


def normalize(norm: Any, x: Tensor) -> Tensor:
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5)
    out: Tensor = x * (inverse * (1 - 2**-20)) * norm.weight
    return out
