"""The angles of a rotary embedding are rounded to bfloat16, as they are where a model is moved as a whole."""

from collections.abc import Callable
from typing import Any

from tests.faults.training import Training
from torch import Tensor

MODELS = ("rotary",)
MODES = ("cpu",)  # Inductor leaves out such a rounding
REVERSED = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "attention.rotary"}


def plant(training: Training) -> None:
    rotary: Any = training.model.get_submodule("attention.rotary")
    exact: Callable[..., Tensor] = rotary.angles

    def angles(*given: object) -> Tensor:
        return exact(*given).bfloat16().float()

    rotary.angles = angles
