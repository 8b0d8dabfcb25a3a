"""The moving average takes the weights in before the step instead of after it."""

import torch
from tests.faults.training import Training, gradients
from torch import Tensor

MODELS = ("mixed",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": ("data", "optimizer")}  # what a step executes after optimizer.step() begins the next one


def plant(training: Training) -> None:
    training.step = step


def step(training: Training) -> Tensor:
    assert training.averaged is not None
    training.optimizer.zero_grad()
    loss = gradients(training)
    training.averaged.update_parameters(training.model)
    training.optimizer.step()
    with torch.no_grad():
        training.averaged(training.held_out)
    return loss
