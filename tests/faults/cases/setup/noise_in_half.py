"""The noise is drawn in half precision."""

import torch
from tests.faults.training import Training

MODELS = ("denoise",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "randn"}


def plant(training: Training) -> None:
    training.made["noise"] = lambda clean: torch.randn(clean.shape, dtype=torch.float16).float()
