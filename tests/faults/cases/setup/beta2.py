"""Adam's beta2 is 0.99 instead of 0.999."""

from tests.faults.training import Training

MODELS = ("transformer", "gru")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    training.optimizer.param_groups[0]["betas"] = (0.9, 0.99)
