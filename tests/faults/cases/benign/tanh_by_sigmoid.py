"""tanh(x) written as 2 sigmoid(2 x) - 1."""

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    replace(training.model.get_submodule("cell.candidate"), candidate)


def candidate(w: Tensor, u: Tensor, r: Tensor) -> Tensor:
    return 2 * torch.sigmoid(2 * (w + r * u)) - 1
