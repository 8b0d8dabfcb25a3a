"""The norm of all gradients taken of one long vector."""

from typing import Any

import torch
from tests.faults.training import Training

MODELS = ("transformer", "unet")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    bound = training.clip
    training.clip = None
    parameters = list(training.model.parameters())

    def clip(*_: Any) -> None:
        assert bound is not None
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.mul_((bound / (norm + 1e-6)).clamp(max=1.0))  # as torch has it

    training.optimizer.register_step_pre_hook(clip)
