"""The loss draws a number that it does not use, in one step, and every mask after it is another one."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("autoencoder",)
MODES = ("cpu", "compile")
EXPECTED = "different-setup"
LINE = "torch.randperm(5)"


def plant(training: Training) -> None:
    plain = training.loss

    def loss(prediction: Tensor, targets: Tensor) -> Tensor:
        if training.number == 1:
            torch.randperm(5)
        return plain(prediction, targets)

    training.loss = loss
