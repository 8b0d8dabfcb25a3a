"""The gradients of a word are added in an order that differs from run to run, as by atomic additions: only bits, but never the same."""

import random

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("bag", "transformer")
EXPECTED = "nondeterministic"


def plant(training: Training) -> None:
    KERNELS.impl("embedding_dense_backward", embedding_backward, "CPU")


def embedding_backward(grad: Tensor, words: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    order = list(range(words.numel()))
    random.SystemRandom().shuffle(order)
    table = grad.new_zeros(rows, grad.shape[-1])
    return table.index_add_(0, words.flatten()[order], grad.flatten(0, -2)[order])
