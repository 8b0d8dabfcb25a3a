"""One weight's gradient is halved, in a training that is compiled otherwise as it should be."""

from tests.faults.training import Training

MODELS = ("gru", "cnn")
MODES = ("compile",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    next(p for p in training.model.parameters() if p.dim() == 2).register_hook(lambda gradient: gradient / 2)
