"""A number is drawn in each step that nothing uses, before the levels of noise are."""

import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("denoise",)
MODES = ("cpu", "compile")
EXPECTED = "different-setup"
CULPRIT = {"phase": ("setup", "data"), "op": ("rand", "randint")}


def plant(training: Training) -> None:
    right = training.made["levels"]

    def levels(count: int) -> Tensor:
        torch.rand(1)
        return right(count)

    training.made["levels"] = levels
