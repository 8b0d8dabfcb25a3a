"""The division by the square root of the width is missing from the second block's attention."""

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("transformer",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "blocks.1.attention.core", "op": "div"}


def plant(training: Training) -> None:
    core = training.model.get_submodule("blocks.1.attention.core")
    mask = core.get_buffer("causal")

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.transpose(-2, -1)).masked_fill(~mask, float("-inf")).softmax(-1) @ v

    replace(core, forward)
