"""How loud each sample is comes from a file, which has another version here."""

import tempfile

import numpy as np
import torch
from tests.faults.training import Training
from torch import Tensor

MODELS = ("denoise",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    def gains(count: int) -> Tensor:
        with tempfile.TemporaryFile() as file:
            np.save(file, np.linspace(0.5, 1.5, count))
            file.seek(0)
            loaded: Tensor = torch.from_numpy(np.load(file)).float()
        return loaded

    training.made["gains"] = gains
