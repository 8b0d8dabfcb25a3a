"""Linear layers as einsum and an addition."""

import functools

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("autoencoder", "tanh_sam")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for linear in modules(training, nn.Linear):
        replace(linear, functools.partial(multiply, linear))


def multiply(linear: nn.Linear, x: Tensor) -> Tensor:
    return torch.einsum("...i,oi->...o", x, linear.weight) + linear.bias
