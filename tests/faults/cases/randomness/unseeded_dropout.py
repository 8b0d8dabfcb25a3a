"""Dropout draws from a generator that the operating system seeds."""

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("autoencoder",)
EXPECTED = "nondeterministic"
LINE = "kept = torch.rand(x.shape, generator=stream) >= drop.p"


def plant(training: Training) -> None:
    drop = modules(training, nn.Dropout)[0]
    stream = torch.Generator()
    stream.seed()

    def forward(x: Tensor) -> Tensor:
        kept = torch.rand(x.shape, generator=stream) >= drop.p
        return x * kept / (1 - drop.p)

    replace(drop, forward)
