"""The row of a time is the one behind: a whole number that is one too large."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile", "lazy")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "places"}


def plant(training: Training) -> None:
    places: Any = training.model.get_submodule("places")
    places.whole = whole


def whole(x: Tensor) -> Tensor:
    return torch.floor(4 * x).long() + 1
