"""The recurrent state is detached at each time: what was learnt of the past is only the last word."""

from tests.faults.training import Training, replace

MODELS = ("gru",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "module": "cell"}


def plant(training: Training) -> None:
    cell = training.model.get_submodule("cell")
    right = cell.forward
    replace(cell, lambda x, h: right(x, h.detach()))
