"""torch is asked for deterministic algorithms, which it uses already."""

import torch
from tests.faults.training import Training

MODELS = ("bag", "cnn", "unet")
EXPECTED = "identical"


def plant(training: Training) -> None:
    torch.use_deterministic_algorithms(True)
