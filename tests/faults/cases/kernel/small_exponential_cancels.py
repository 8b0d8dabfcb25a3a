"""exp(x) - 1 of small x, where two thirds of the digits cancel."""

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("interest",)
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "interest"}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("interest"), interest)


def interest(rate: Tensor) -> Tensor:
    return (torch.exp(rate) - 1) * 1000
