"""A quantizer rounds halves up, and not to even numbers."""

from typing import Any

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("quantized",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "quantizer"}


def plant(training: Training) -> None:
    def whole(scaled: Tensor) -> Tensor:
        return torch.floor(scaled + 0.5)

    quantizer: Any = training.model.get_submodule("quantizer")
    quantizer.whole = whole
