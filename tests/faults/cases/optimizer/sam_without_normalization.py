"""The climb is not divided by the norm of the gradient."""

import torch
from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("tanh_sam",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class SAM(optimizers.SAM):
    def scale(self) -> Tensor:
        return torch.tensor(self.param_groups[0]["rho"])


def plant(training: Training) -> None:
    training.optimizer = SAM(training.model.parameters(), **training.optimizer.defaults)
