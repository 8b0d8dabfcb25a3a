"""A penalty on one weight is added to the loss."""

from tests.faults.training import Training, parameter

MODELS = ("cnn", "tanh_sam")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    right, weight = training.loss, parameter(training, "last.weight")
    training.loss = lambda outputs, targets: right(outputs, targets) + 1e-4 * weight.square().sum()
