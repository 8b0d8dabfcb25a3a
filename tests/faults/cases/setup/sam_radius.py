"""SAM climbs 0.06 instead of 0.05."""

from tests.faults.training import Training

MODELS = ("tanh_sam",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    training.optimizer.param_groups[0]["rho"] = 0.06
