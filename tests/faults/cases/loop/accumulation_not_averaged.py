"""The losses of the micro-batches are summed instead of averaged."""

from tests.faults.training import Training

MODELS = ("bag",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    right = training.loss
    parts = len(training.batches[0])
    training.loss = lambda outputs, targets: right(outputs, targets) * parts
