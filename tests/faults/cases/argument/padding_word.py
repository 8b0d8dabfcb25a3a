"""The embedding takes word 0 for padding, so it never learns it."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("bag", "transformer")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "embedding_dense_backward"}


def plant(training: Training) -> None:
    modules(training, nn.Embedding)[0].padding_idx = 0
