"""A root mean square norm in a model of 16 bits by other formulas, each in float32 as it was."""

import os
from collections.abc import Callable
from typing import Any

import torch
from tests.faults.training import Training, replace
from torch import Tensor, nn

MODELS = ("rotary", "half", "scaled")
MODES = ("cpu,env.FORM=divided", "cpu,env.FORM=length", "compile,env.FORM=divided", "compile,env.FORM=fused")
EXPECTED = "rounding"

FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "divided": lambda x: x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-5),
    "length": lambda x: x * torch.rsqrt(torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 / x.shape[-1] + 1e-5),
    "fused": lambda x: nn.functional.rms_norm(x, x.shape[-1:], eps=1e-5),
}


def plant(training: Training) -> None:
    for name in ("norm1", "norm2"):
        norm = training.model.get_submodule(name)
        replace(norm, formed(norm, FORMS[os.environ["FORM"]]))


def formed(norm: Any, form: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        out: Tensor = form(x.float()).to(x.dtype) * norm.weight
        return out

    return forward
