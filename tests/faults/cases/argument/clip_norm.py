"""Gradients are clipped to a norm of 0.9 instead of 1."""

from tests.faults.training import Training

MODELS = ("transformer", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.clip = 0.9
