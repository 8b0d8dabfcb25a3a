"""The embedding is frozen: it has no gradient at all."""

from tests.faults.training import Training, parameter

MODELS = ("bag",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "module": "words"}


def plant(training: Training) -> None:
    parameter(training, "words.weight").requires_grad_(False)
