"""Weights of linear layers are transposed into memory of their own before the product."""

import torch
from tests.faults.training import Training, modules, replace
from torch import nn

MODELS = ("tanh_sam", "autoencoder", "bag")
MODES = ("cpu", "compile")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for linear in modules(training, nn.Linear):
        replace(linear, lambda x, linear=linear: torch.addmm(linear.bias, x, linear.weight.t().contiguous()))
