"""The model trains in evaluation mode: nothing is dropped and nothing is drawn."""

from tests.faults.training import Training

MODELS = ("autoencoder",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "forward", "module": "drop"}


def plant(training: Training) -> None:
    training.model.eval()
