"""Adam in one fused kernel."""

from tests.faults.training import Training

MODELS = ("transformer", "autoencoder", "unet")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.optimizer.param_groups[0]["fused"] = True
