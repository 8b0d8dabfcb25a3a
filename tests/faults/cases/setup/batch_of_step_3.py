"""One batch is another one, as after a worker that restarted."""

from tests.faults.training import Training

MODELS = ("gru", "mixed", "unet")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    training.batches[3] = training.batches[2]
