"""Binary cross entropy as max(x, 0) - x y + log1p(exp(-|x|))."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("bag",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.loss = loss


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.clamp(min=0) - outputs * targets + torch.log1p(torch.exp(-outputs.abs()))).mean()
