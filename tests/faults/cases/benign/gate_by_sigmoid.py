"""The SiLU of a gate in bfloat16 as a product, whose factors are rounded."""

from typing import Any

import torch
import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary",)
MODES = ("cpu", "compile")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    gated: Any = training.model.get_submodule("gated")

    def forward(x: Tensor) -> Tensor:
        gate = gated.gate(x)
        return F.linear(gate * torch.sigmoid(gate) * gated.up(x), gated.down.weight)

    replace(gated, forward)
