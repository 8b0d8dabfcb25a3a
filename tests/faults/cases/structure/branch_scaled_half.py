"""A branch of a residual network of 16 bits is a twentieth larger."""

from typing import Any

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("half", "scaled")
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "branch1"}


def plant(training: Training) -> None:
    branch: Any = training.model.get_submodule("branch1")

    def forward(x: Tensor) -> Tensor:
        out: Tensor = branch.narrow(branch.act(branch.wide(x))) * 1.05
        return out

    replace(branch, forward)
