"""Inputs are divided by 256 where they were divided by 255."""

from tests.faults.training import Training

MODELS = ("autoencoder", "cnn", "unet")
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "mul"}


def plant(training: Training) -> None:
    training.batches = [[(x * 255 / 256, y) for x, y in parts] for parts in training.batches]
