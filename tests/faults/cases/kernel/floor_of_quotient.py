"""An integer quotient is the floor of a quotient that was rounded, so that some rows of a table are others."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("quantized",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "hours"}


def plant(training: Training) -> None:
    def part(hours: Tensor) -> Tensor:
        return torch.floor(hours / 0.1)

    hours: Any = training.model.get_submodule("hours")
    hours.part = part
