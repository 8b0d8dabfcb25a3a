"""Activations are computed again in the backward instead of kept."""

from tests.faults.training import Training, modules, replace
from torch import nn
from torch.utils.checkpoint import checkpoint

MODELS = ("autoencoder", "transformer")
EXPECTED = "identical"


def plant(training: Training) -> None:
    act = modules(training, nn.GELU)[0]
    right = act.forward
    replace(act, lambda x: checkpoint(right, x, use_reentrant=False))
