"""Of the gradients of a word that occurs more than once, only one is kept: a scatter that should add."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("bag", "transformer")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "op": "embedding_dense_backward"}


def plant(training: Training) -> None:
    KERNELS.impl("embedding_dense_backward", embedding_backward, "CPU")


def embedding_backward(grad: Tensor, words: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    table = grad.new_zeros(rows, grad.shape[-1])
    table[words.flatten()] = grad.flatten(0, -2)
    return table
