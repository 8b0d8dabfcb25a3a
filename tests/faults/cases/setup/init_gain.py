"""One weight starts 1 % larger."""

import torch
from tests.faults.training import Training, parameter

MODELS = ("transformer", "bag")
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "mul"}


def plant(training: Training) -> None:
    with torch.no_grad():
        parameter(training, "words.weight").mul_(1.01)
