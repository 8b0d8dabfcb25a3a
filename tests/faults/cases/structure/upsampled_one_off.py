"""The transposed convolution's output lies one place too far right, as where padding is split the other way."""

from tests.faults.training import Training, replace

MODELS = ("unet",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "up"}


def plant(training: Training) -> None:
    up = training.model.get_submodule("up")
    right = up.forward
    replace(up, lambda x: right(x).roll(1, 3))
