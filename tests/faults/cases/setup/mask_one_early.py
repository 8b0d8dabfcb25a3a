"""The causal mask starts one position early: nothing sees itself."""

import torch
from tests.faults.training import Training

MODELS = ("denoise",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "triu"}


def plant(training: Training) -> None:
    training.made["causal"] = lambda length: torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=0)
