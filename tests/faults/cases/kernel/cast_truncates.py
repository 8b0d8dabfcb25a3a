"""The whole part of a time is cut off, where it has to be the one below: they differ below zero."""

from typing import Any

from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "places"}


def plant(training: Training) -> None:
    places: Any = training.model.get_submodule("places")
    places.whole = whole


def whole(x: Tensor) -> Tensor:
    return (4 * x + 0.5).long()
