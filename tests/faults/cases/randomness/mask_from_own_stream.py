"""Dropout draws from a generator of its own, seeded well."""

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("autoencoder",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "forward", "module": "drop"}


def plant(training: Training) -> None:
    drop = modules(training, nn.Dropout)[0]
    stream = torch.Generator().manual_seed(0)

    def forward(x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=stream) >= drop.p
        return x * kept / (1 - drop.p)

    replace(drop, forward)
