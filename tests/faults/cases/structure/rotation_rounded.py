"""The sines and cosines of a rotary embedding are rounded to bfloat16 before they are multiplied."""

from typing import Any

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "attention.rotary"}


def plant(training: Training) -> None:
    rotary: Any = training.model.get_submodule("attention.rotary")

    def forward(x: Tensor) -> Tensor:
        angles = rotary.angles(x.device)
        cosine, sine = angles.cos().bfloat16().float(), angles.sin().bfloat16().float()
        left, right = x.float().chunk(2, -1)
        return torch.cat((left * cosine - right * sine, left * sine + right * cosine), -1).to(x.dtype)

    replace(rotary, forward)
