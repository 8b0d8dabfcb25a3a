"""NumPy's generator has another seed: what it draws comes from outside of torch."""

import numpy as np
import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("denoise",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    def gains(count: int) -> Tensor:
        drawn: Tensor = torch.from_numpy(np.random.default_rng(training.number + 1).uniform(0.5, 1.5, count)).float()
        return drawn

    training.made["gains"] = gains
