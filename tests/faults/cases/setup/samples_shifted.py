"""Each sample gets the noise of its neighbour from step 7 on."""

from tests.faults.training import Training

MODELS = ("denoise",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "roll"}


def plant(training: Training) -> None:
    right = training.made["noise"]
    training.made["noise"] = lambda clean: right(clean).roll(1, 0) if training.number >= 7 else right(clean)
