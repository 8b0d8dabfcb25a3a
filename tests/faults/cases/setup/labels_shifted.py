"""Each sample has the label of the one before. A model never sees labels, so it is the loss that is off."""

from tests.faults.training import Training

MODELS = ("cnn", "bag")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "data"}


def plant(training: Training) -> None:
    training.batches = [[(x, y.roll(1)) for x, y in parts] for parts in training.batches]
