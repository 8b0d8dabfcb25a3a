"""Gradients are clipped to nine tenths of the norm."""

from tests.faults.training import Training

MODELS = ("transformer", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    assert training.clip is not None
    training.clip *= 0.9
