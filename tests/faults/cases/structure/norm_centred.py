"""A root mean square norm subtracts the mean, as a layer norm does, in a model that is bfloat16 throughout."""

from typing import Any

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary", "half", "scaled")
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "norm1"}


def plant(training: Training) -> None:
    norm = training.model.get_submodule("norm1")
    replace(norm, lambda x: centred(norm, x))


def centred(norm: Any, x: Tensor) -> Tensor:
    wide = x.float()
    wide = wide - wide.mean(-1, keepdim=True)
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5)
    out: Tensor = scaled.to(x.dtype) * norm.weight
    return out
