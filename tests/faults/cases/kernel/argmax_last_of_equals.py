"""Of equal votes the last one is the largest, and not the first."""

from typing import Any

from tests.faults.training import Training
from torch import Tensor

MODELS = ("choices",)
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "experts"}


def plant(training: Training) -> None:
    experts: Any = training.model.get_submodule("experts")
    experts.chosen = chosen


def chosen(votes: Tensor) -> Tensor:
    return votes.shape[-1] - 1 - votes.flip(-1).argmax(-1)
