"""A branch of the first block is detached: forward is right, and half of the gradient is gone."""

from tests.faults.training import Training, replace

MODELS = ("transformer",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "module": "blocks.0"}


def plant(training: Training) -> None:
    attention = training.model.get_submodule("blocks.0.attention")
    right = attention.forward
    replace(attention, lambda x: right(x.detach()))
