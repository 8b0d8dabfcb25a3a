"""Dropout written out; the mask is drawn alike."""

import torch
from tests.faults.training import Training, modules, replace
from torch import nn

MODELS = ("autoencoder",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    drop = modules(training, nn.Dropout)[0]
    replace(drop, lambda x: x * torch.empty_like(x).bernoulli_(1 - drop.p) * (1 / (1 - drop.p)))
