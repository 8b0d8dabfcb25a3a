"""One weight's gradient counts twice. Adam divides it by its own size again, so the loss does not show it."""

from tests.faults.training import Training

MODELS = ("gru", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    next(p for p in training.model.parameters() if p.dim() == 2).register_hook(lambda gradient: 2 * gradient)
