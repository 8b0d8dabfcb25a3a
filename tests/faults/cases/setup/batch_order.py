"""The batches come in the opposite order."""

from tests.faults.training import Training

MODELS = ("tanh_sam", "cnn", "bag")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    training.batches.reverse()
