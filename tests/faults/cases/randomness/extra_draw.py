"""A number is drawn before dropout, and every mask after it is another one."""

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("autoencoder",)
EXPECTED = "different-setup"
LINE = "torch.rand(1)"
CULPRIT = {"phase": "forward", "module": "drop", "op": ("rand", "bernoulli")}


def plant(training: Training) -> None:
    drop = modules(training, nn.Dropout)[0]
    right = drop.forward

    def forward(x: Tensor) -> Tensor:
        torch.rand(1)
        return right(x)

    replace(drop, forward)
