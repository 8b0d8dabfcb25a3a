"""A micro-batch of each step is left out."""

from tests.faults.training import Training

MODELS = ("bag",)
EXPECTED = "beyond-rounding"


def plant(training: Training) -> None:
    for parts in training.batches:
        parts.pop()
