"""The schedule of the noise is shifted by 0.01 in place of 0.008."""

import torch
from tests.faults.training import Training

MODELS = ("denoise",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "add"}


def plant(training: Training) -> None:
    training.made["kept"] = lambda t: torch.cos((t / 200 + 0.01) * 1.55).square()
