"""The learning rate is 1 % larger."""

from tests.faults.training import Training

MODELS = ("cnn", "autoencoder", "unet")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    training.optimizer.param_groups[0]["lr"] *= 1.01
