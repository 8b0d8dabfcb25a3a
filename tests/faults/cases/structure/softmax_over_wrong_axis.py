"""Attention weights sum to one over the queries instead of the keys."""

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("transformer",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "blocks.0.attention.core", "op": "_softmax"}


def plant(training: Training) -> None:
    core = training.model.get_submodule("blocks.0.attention.core")
    mask = core.get_buffer("causal")

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        out: Tensor = scores.masked_fill(~mask, float("-inf")).softmax(-2) @ v
        return out

    replace(core, forward)
