"""Gradients are set to zero instead of none."""

import functools

from tests.faults.training import Training

MODELS = ("cnn", "bag", "transformer", "unet")
EXPECTED = "identical"


def plant(training: Training) -> None:
    training.optimizer.zero_grad = functools.partial(training.optimizer.zero_grad, set_to_none=False)  # type: ignore[method-assign]
