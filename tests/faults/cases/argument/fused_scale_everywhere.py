"""All attentions have another scale, in the forward and the backward of each."""

from typing import Any

from tests.faults.training import Training

MODELS = ("fused",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "_scaled_dot_product_flash_attention_for_cpu", "sites": 2}


def plant(training: Training) -> None:
    for name in ("blocks.0.attention", "blocks.1.attention"):
        attention: Any = training.model.get_submodule(name)
        attention.scale = 0.3535
