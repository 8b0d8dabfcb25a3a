"""A bias gets a gradient of zero, as from a fused layer that forgets to sum it."""

import torch
from tests.faults.training import Training

MODELS = ("tanh_sam", "cnn", "autoencoder")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    next(p for p in training.model.parameters() if p.dim() == 1).register_hook(torch.zeros_like)
