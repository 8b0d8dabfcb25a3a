"""The outputs are normalized before a loss that normalizes them again."""

import torch.nn.functional as F
from tests.faults.training import Training
from torch import Tensor

MODELS = ("cnn", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.softmax(-1), targets)

    training.loss = loss
