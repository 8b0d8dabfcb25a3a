"""torch's scaled_dot_product_attention instead of its formula."""

import functools

import torch.nn.functional as F
from tests.faults.training import Training, replace

MODELS = ("transformer",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for block in range(2):
        core = training.model.get_submodule(f"blocks.{block}.attention.core")
        replace(core, functools.partial(F.scaled_dot_product_attention, is_causal=True))
