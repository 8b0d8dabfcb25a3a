"""The causal mask lets each place see the next one: the model reads what it should predict."""

import torch
from tests.faults.training import Training

MODELS = ("transformer",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    core = training.model.get_submodule("blocks.0.attention.core")
    mask = core.get_buffer("causal")
    mask.copy_(torch.ones(mask.shape, dtype=torch.bool).tril(1))
