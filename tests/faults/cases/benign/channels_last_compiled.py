"""Convolutions in the channels-last layout, compiled."""

import torch
from tests.faults.training import Training

MODELS = ("cnn",)
MODES = ("compile",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
