"""The causal mask is strict: the first place sees nothing, and its softmax is 0 / 0."""

import torch
from tests.faults.training import Training

MODELS = ("transformer",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    core = training.model.get_submodule("blocks.0.attention.core")
    mask = core.get_buffer("causal")
    mask.copy_(torch.ones(mask.shape, dtype=torch.bool).tril(-1))
