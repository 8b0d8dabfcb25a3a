"""The mean squared error written out."""

from tests.faults.training import Training

MODELS = ("tanh_sam",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.loss = lambda outputs, targets: (outputs - targets).square().sum() / outputs.numel()
