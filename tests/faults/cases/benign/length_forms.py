"""Vectors are brought to length one by other formulas."""

import os
from collections.abc import Callable

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("formulas",)
MODES = (
    "cpu,env.FORM=root",
    "cpu,env.FORM=scaled",
    "cpu,env.FORM=product",
    "compile,env.FORM=root",
    "compile,env.FORM=scaled",
)
EXPECTED = "rounding"


def scaled(x: Tensor) -> Tensor:
    """The largest element first, so that no square overflows."""
    largest = x.detach().abs().amax(-1, keepdim=True)
    out: Tensor = largest * torch.linalg.vector_norm(x / largest, dim=-1, keepdim=True)
    return out


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "root": lambda x: x.square().sum(-1, keepdim=True).sqrt(),
    "scaled": scaled,
    "product": lambda x: (x.unsqueeze(-2) @ x.unsqueeze(-1)).squeeze(-1).sqrt(),
}


def plant(training: Training) -> None:
    length = FORMS[os.environ["FORM"]]
    replace(training.model.get_submodule("length"), lambda x: x / (length(x) + 1e-6))
