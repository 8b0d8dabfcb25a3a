"""One layer starts from other values, as with another seed."""

import torch
from tests.faults.training import Training

MODELS = ("tanh_sam", "gru", "cnn")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    layer = training.model.get_submodule("last")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layer.reset_parameters()  # type: ignore[operator]
