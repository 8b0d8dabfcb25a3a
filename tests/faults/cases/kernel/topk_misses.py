"""A kernel of topk takes the fourth largest in place of the third."""

import torch
from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("choices",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "op": "topk"}


def plant(training: Training) -> None:
    KERNELS.impl("topk", topk, "CPU")


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(x, dim, descending=largest)
    places = torch.tensor([*range(k - 1), k])
    return values.index_select(dim, places), indices.index_select(dim, places)
