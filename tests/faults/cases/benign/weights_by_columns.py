"""The parameters of linear layers lie column by column in memory."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("tanh_sam", "autoencoder", "gru")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for linear in modules(training, nn.Linear):
        linear.weight.data = linear.weight.data.t().contiguous().t()
