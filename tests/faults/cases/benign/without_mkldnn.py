"""Convolutions by torch's own code instead of oneDNN."""

import torch
from tests.faults.training import Training

MODELS = ("cnn", "unet")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    torch.backends.mkldnn.set_flags(False)
