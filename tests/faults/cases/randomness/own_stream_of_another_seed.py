"""A module's own generator has another seed."""

from typing import Any

from tests.faults.training import Training

MODELS = ("standardized",)
MODES = ("cpu", "compile")
REVERSED = ("cpu", "compile")
EXPECTED = "different-setup"
CULPRIT = {"phase": "forward", "module": "noise"}


def plant(training: Training) -> None:
    noise: Any = training.model.get_submodule("noise")
    noise.stream.manual_seed(2)
