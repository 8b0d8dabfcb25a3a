"""A reading on the edge between two bins falls into the upper one."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "bins"}


def plant(training: Training) -> None:
    bins: Any = training.model.get_submodule("bins")
    bins.which = lambda x: upper(x, bins.edges)


def upper(x: Tensor, edges: Tensor) -> Tensor:
    return torch.bucketize(x.contiguous(), edges, right=True)
