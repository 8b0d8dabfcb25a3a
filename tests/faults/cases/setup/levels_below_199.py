"""The highest level of noise is never drawn."""

import torch
from tests.faults.training import Training

MODELS = ("denoise",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "randint"}


def plant(training: Training) -> None:
    training.made["levels"] = lambda count: torch.randint(0, 199, (count,))
