"""The embedding of the places is off by one place."""

from tests.faults.training import Training

MODELS = ("transformer",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    order = training.model.get_buffer("order")
    order.copy_(order.roll(1))
