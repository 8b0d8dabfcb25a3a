"""The attention of the second block has another scale: its forward and its backward are told so."""

from typing import Any

from tests.faults.training import Training

MODELS = ("fused",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "blocks.1.attention", "sites": 1}


def plant(training: Training) -> None:
    attention: Any = training.model.get_submodule("blocks.1.attention")
    attention.scale = 0.3535
