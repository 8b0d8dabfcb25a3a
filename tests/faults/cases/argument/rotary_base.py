"""The angles of a rotary embedding fall by another base: 101, not 100."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("rotary",)
MODES = ("cpu", "compile")
REVERSED = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "attention.rotary"}


def plant(training: Training) -> None:
    rotary: Any = training.model.get_submodule("attention.rotary")

    def angles(device: torch.device) -> Tensor:
        frequencies = 101.0 ** (-torch.arange(8, device=device) / 8)
        return torch.outer(torch.arange(16, device=device).float(), frequencies)

    rotary.angles = angles
