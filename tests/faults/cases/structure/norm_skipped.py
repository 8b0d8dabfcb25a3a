"""The second block's feed-forward part reads the values before the layer norm."""

from tests.faults.training import Training, replace

MODELS = ("transformer",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "blocks.1.norm2"}


def plant(training: Training) -> None:
    norm = training.model.get_submodule("blocks.1.norm2")
    replace(norm, lambda x: x)
