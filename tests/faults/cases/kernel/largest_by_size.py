"""The largest features are chosen by their size, without their sign."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "sparse"}


def plant(training: Training) -> None:
    sparse: Any = training.model.get_submodule("sparse")
    sparse.kept = kept


def kept(x: Tensor) -> Tensor:
    return torch.topk(x.abs(), 3).indices
