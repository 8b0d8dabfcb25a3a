"""Attention scales the queries, by a factor, before the product."""

import functools

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("transformer",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for block in range(2):
        core = training.model.get_submodule(f"blocks.{block}.attention.core")
        replace(core, functools.partial(attend, core.get_buffer("causal")))


def attend(mask: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    out: Tensor = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
    return out
