"""The reset gate is applied to the state before the product instead of after, without its bias: another GRU."""

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "cell.candidate"}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("cell.candidate"), candidate)


def candidate(w: Tensor, u: Tensor, r: Tensor) -> Tensor:
    return torch.tanh(r * (w + u))
