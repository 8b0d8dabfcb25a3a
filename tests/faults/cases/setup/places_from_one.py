"""Places are counted from 1."""

import torch
from tests.faults.training import Training

MODELS = ("denoise",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "arange"}


def plant(training: Training) -> None:
    training.made["places"] = lambda length: torch.arange(1, length + 1)
