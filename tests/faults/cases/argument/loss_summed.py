"""The loss is the sum over the batch instead of the mean; RMSprop and Adam hide it from the curve's shape."""

import functools

from tests.faults.training import Training

MODELS = ("bag", "autoencoder", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    right = training.loss
    training.loss = functools.partial(right, reduction="sum")  # type: ignore[call-arg]
