"""The last bias gets a gradient of zero, as from a fused layer that forgets to sum it."""

import torch
from tests.faults.training import Training

MODELS = ("tanh_sam", "cnn", "autoencoder", "unet")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward"}


def plant(training: Training) -> None:
    # That of a convolution before a batch norm would not do: its gradient is nothing but rounding.
    list(training.model.parameters())[-1].register_hook(torch.zeros_like)
