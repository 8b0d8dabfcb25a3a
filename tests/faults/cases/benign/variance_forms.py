"""The variance of readings around a hundred thousand by other formulas that do not lose it."""

import os
from collections.abc import Callable

import torch
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("standardized",)
MODES = (
    "cpu,env.FORM=two_passes",
    "cpu,env.FORM=deviation",
    "cpu,env.FORM=shifted",
    "cpu,env.FORM=double",
    "compile,env.FORM=two_passes",
    "compile,env.FORM=shifted",
)
EXPECTED = "rounding"


def two_passes(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)).square().sum(-1, keepdim=True) / (x.shape[-1] - 1)


def shifted(x: Tensor) -> Tensor:
    return (x - x[..., :1]).var(-1, keepdim=True)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "two_passes": two_passes,
    "deviation": lambda x: x.std(-1, keepdim=True).square(),
    "shifted": shifted,
    "double": lambda x: x.double().var(-1, keepdim=True).float(),
}


def plant(training: Training) -> None:
    variance = FORMS[os.environ["FORM"]]

    def standardized(x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(variance(x) + 1e-5)

    replace(training.model.get_submodule("standardized"), standardized)
