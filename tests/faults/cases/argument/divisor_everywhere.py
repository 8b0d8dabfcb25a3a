"""Every block divides by the square root of 9 instead of the heads' width 8."""

from typing import Any

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("transformer",)
MODES = ("cpu", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "div", "sites": 2}


def plant(training: Training) -> None:
    for name in ("blocks.0.attention.core", "blocks.1.attention.core"):
        core: Any = training.model.get_submodule(name)

        def forward(q: Tensor, k: Tensor, v: Tensor, causal: Tensor = core.causal) -> Tensor:
            scores = q @ k.transpose(-2, -1) / 9**0.5
            heads: Tensor = scores.masked_fill(~causal, float("-inf")).softmax(-1) @ v
            return heads

        replace(core, forward)
