"""Adam without its list kernels."""

from tests.faults.training import Training

MODELS = ("autoencoder",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.optimizer.param_groups[0]["foreach"] = False
