"""The embedding as a product of one-hot rows with its table."""

import torch.nn.functional as F
from tests.faults.training import Training, modules, replace
from torch import nn

MODELS = ("bag", "transformer")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    words = modules(training, nn.Embedding)[0]
    replace(words, lambda x: F.one_hot(x, words.num_embeddings).float() @ words.weight)
