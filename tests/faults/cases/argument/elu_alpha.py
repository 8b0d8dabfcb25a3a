"""An ELU has another scale, which its forward and its backward take."""

from typing import Any

from tests.faults.training import Training

MODELS = ("formulas",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"module": "elu"}


def plant(training: Training) -> None:
    elu: Any = training.model.get_submodule("elu")
    elu.alpha = 1.001
