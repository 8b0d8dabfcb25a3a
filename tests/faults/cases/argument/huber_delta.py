"""The Huber loss goes on as a line from 0.6 instead of 0.5."""

import functools

import torch.nn.functional as F
from tests.faults.training import Training

MODELS = ("unet",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "huber_loss"}


def plant(training: Training) -> None:
    training.loss = functools.partial(F.huber_loss, delta=0.6)
