"""The head has weights of its own, which start equal to those of the embedding."""

from tests.faults.training import Training, parameter
from torch import nn

MODELS = ("transformer",)
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    head = training.model.get_submodule("head")
    head.weight = nn.Parameter(parameter(training, "words.weight").detach().clone())
    training.optimizer.add_param_group({"params": [head.weight]})
