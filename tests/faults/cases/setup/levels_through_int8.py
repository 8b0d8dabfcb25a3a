"""The levels of noise pass through int8, which holds 127 at most."""

import torch
from tests.faults.training import Training

MODELS = ("denoise",)
MODES = ("cpu", "compile")
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "_to_copy"}


def plant(training: Training) -> None:
    right = training.made["levels"]
    training.made["levels"] = lambda count: right(count).to(torch.int8).long().clamp(min=0)
