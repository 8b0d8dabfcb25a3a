"""Attention in bfloat16 by its products and a softmax, in place of the fused op."""

from typing import Any

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary",)
MODES = ("cpu", "compile")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    attention: Any = training.model.get_submodule("attention")

    def forward(x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = attention.qkv(x).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        scores = attention.rotary(q) @ attention.rotary(k).transpose(-2, -1) / (d // 4) ** 0.5
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        heads = scores.masked_fill(later, float("-inf")).softmax(-1) @ v
        out: Tensor = attention.out(heads.transpose(1, 2).reshape(b, t, d))
        return out

    replace(attention, forward)
