"""Batches begin 4 bytes off a boundary of 64, as parts of larger tensors do."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("tanh_sam", "cnn", "autoencoder")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    training.batches = [[(shifted(x), y) for x, y in parts] for parts in training.batches]


def shifted(x: Tensor) -> Tensor:
    return torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape)
