"""Nothing is changed: the training repeats itself."""

from tests.faults.training import Training

MODELS = (
    "tanh_sam",
    "transformer",
    "cnn",
    "gru",
    "autoencoder",
    "mixed",
    "bag",
    "unet",
    "memory",
    "bookkeeping",
    "settings",
)
EXPECTED = "identical"


def plant(training: Training) -> None:
    pass
