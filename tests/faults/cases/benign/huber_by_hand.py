"""The Huber loss written out: a parabola that goes on as a line."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("unet",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.loss = loss


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    distance = (outputs - targets).abs()
    return torch.where(distance < 0.5, 0.5 * distance.square(), 0.5 * (distance - 0.25)).mean()
