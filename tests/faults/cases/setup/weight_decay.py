"""The weight decay is left at the optimizer's default."""

from tests.faults.training import Training

MODELS = ("gru", "transformer")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    training.optimizer.param_groups[0]["weight_decay"] = 0.01
