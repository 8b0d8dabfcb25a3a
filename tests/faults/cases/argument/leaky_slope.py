"""A leaky ReLU has another slope, which its forward and its backward take."""

from typing import Any

from tests.faults.training import Training

MODELS = ("formulas",)
MODES = ("cpu", "compile", "lazy")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
CULPRIT = {"module": "leaky"}


def plant(training: Training) -> None:
    leaky: Any = training.model.get_submodule("leaky")
    leaky.negative_slope = 0.011
