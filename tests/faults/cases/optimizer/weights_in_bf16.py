"""Weights are rounded to bfloat16 after each step: updates smaller than that are lost."""

from typing import Any

import torch
from tests.faults.training import Training
from torch.optim import Optimizer

MODELS = ("mixed", "bag")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


def plant(training: Training) -> None:
    training.optimizer.register_step_post_hook(shorten)


@torch.no_grad()
def shorten(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for p in optimizer.param_groups[0]["params"]:
        p.copy_(p.bfloat16())
