"""GELU written out with erf."""

import torch
from tests.faults.training import Training, modules, replace
from torch import nn

MODELS = ("transformer", "autoencoder")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for act in modules(training, nn.GELU):
        replace(act, lambda x: x * 0.5 * (1 + torch.erf(x * 0.5**0.5)))
