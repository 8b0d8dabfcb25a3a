"""The script sets the number of threads itself."""

import torch
from tests.faults.training import Training

MODELS = ("tanh_sam", "cnn", "unet")  # an embedding's gradient is added in any order by compiled threads
MODES = ("cpu", "compile")
REVERSED = ("cpu",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    torch.set_num_threads(2)
