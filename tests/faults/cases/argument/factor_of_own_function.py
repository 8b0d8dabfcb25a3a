"""A function with a backward of its own has another factor, in its forward and in its backward."""

from typing import Any

from tests.faults.training import Training

MODELS = ("fused",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "mul", "module": "blocks.0.scaled", "sites": 2}


def plant(training: Training) -> None:
    scaled: Any = training.model.get_submodule("blocks.0.scaled")
    scaled.factor = 0.76
