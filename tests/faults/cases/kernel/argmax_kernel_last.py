"""A kernel of argmax gives the last of equal votes, and not the first."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("choices",)
REVERSED = ("cpu", "compile")
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "op": "argmax"}


def plant(training: Training) -> None:
    KERNELS.impl("argmax", argmax, "CPU")


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    assert dim is not None
    last = x.shape[dim] - 1
    return last - x.flip(dim).max(dim, keepdim=keepdim).indices
