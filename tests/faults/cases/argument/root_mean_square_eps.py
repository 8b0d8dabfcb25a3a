"""A root mean square norm in a model of 16 bits adds 0.001 to the mean of the squares, and not 0.00001."""

from typing import Any

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary", "half", "scaled")
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "norm2", "op": "add"}


def plant(training: Training) -> None:
    norm = training.model.get_submodule("norm2")
    replace(norm, lambda x: normalized(norm, x))


def normalized(norm: Any, x: Tensor) -> Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-3)
    out: Tensor = scaled.to(x.dtype) * norm.weight
    return out
