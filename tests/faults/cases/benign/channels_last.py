"""Convolutions in the channels-last layout."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("cnn", "unet")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    training.batches = [[(last(x), y) for x, y in parts] for parts in training.batches]


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)
