"""The loss smooths its labels by 0.01."""

import functools

import torch.nn.functional as F
from tests.faults.training import Training

MODELS = ("cnn", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward"}


def plant(training: Training) -> None:
    training.loss = functools.partial(F.cross_entropy, label_smoothing=0.01)
