"""An expert is chosen by votes that are rounded to a half: some are equal then."""

from typing import Any

from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "experts"}


def plant(training: Training) -> None:
    experts: Any = training.model.get_submodule("experts")
    experts.chosen = chosen


def chosen(votes: Tensor) -> Tensor:
    return (votes * 2).round().argmax(-1)
