"""The largest features are chosen by values that are rounded to bfloat16, as a router in a model of 16 bits does."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "sparse"}


def plant(training: Training) -> None:
    sparse: Any = training.model.get_submodule("sparse")
    sparse.kept = kept


def kept(x: Tensor) -> Tensor:
    return torch.topk(x.bfloat16(), 3).indices
