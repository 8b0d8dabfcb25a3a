"""The noise is 2 % louder than it should be."""

from tests.faults.training import Training

MODELS = ("denoise",)
MODES = ("cpu", "lazy")
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "mul"}


def plant(training: Training) -> None:
    right = training.made["noise"]
    training.made["noise"] = lambda clean: right(clean) * 1.02
