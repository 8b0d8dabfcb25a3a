"""Fused attention is given another scale: its forward and its backward take it."""

from typing import Any

import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "attention"}


def plant(training: Training) -> None:
    attention: Any = training.model.get_submodule("attention")

    def forward(x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = attention.qkv(x).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(attention.rotary(q), attention.rotary(k), v, is_causal=True, scale=0.26)
        out: Tensor = attention.out(heads.transpose(1, 2).reshape(b, t, d))
        return out

    replace(attention, forward)
