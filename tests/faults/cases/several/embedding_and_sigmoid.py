"""The embedding takes word 0 for padding, and the derivative of the sigmoid is in bfloat16."""

from tests.faults.training import Training, modules
from torch import nn

MODELS = ("bag",)
MODES = (
    "cpu,kernel.sigmoid_backward=bf16",
    "compile,kernel.sigmoid_backward=bf16",
    "lazy,kernel.sigmoid_backward=bf16",
)
EXPECTED = "beyond-rounding"
CULPRIT = (
    {"phase": "backward", "op": "embedding_dense_backward"},
    {"phase": "backward", "op": "sigmoid_backward"},
)


def plant(training: Training) -> None:
    modules(training, nn.Embedding)[0].padding_idx = 0
