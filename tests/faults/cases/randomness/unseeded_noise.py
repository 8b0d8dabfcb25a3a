"""Inputs get noise from a generator that nobody seeds: no run repeats."""

import numpy as np
import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("cnn", "gru", "unet")
EXPECTED = "nondeterministic"
LINE = "return x + 1e-3 * torch.from_numpy(stream.standard_normal(x.shape)).float()"


def plant(training: Training) -> None:
    stream = np.random.default_rng()
    training.batches = [[(blurred(x, stream), y) for x, y in parts] for parts in training.batches]


def blurred(x: Tensor, stream: np.random.Generator) -> Tensor:
    return x + 1e-3 * torch.from_numpy(stream.standard_normal(x.shape)).float()
