"""Softplus by other formulas, of which each is as good as the rounding of its inputs lets it be."""

import os
from collections.abc import Callable

import torch
import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("formulas",)
MODES = (
    "cpu,env.FORM=log1p",
    "cpu,env.FORM=logaddexp",
    "cpu,env.FORM=logsigmoid",
    "cpu,env.FORM=plain",
    "compile,env.FORM=log1p",
    "compile,env.FORM=logaddexp",
    "compile,env.FORM=logsigmoid",
)
EXPECTED = "rounding"

FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "log1p": lambda x: x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())),
    "logaddexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "logsigmoid": lambda x: -F.logsigmoid(-x),
    "plain": lambda x: torch.log(1 + torch.exp(x)),
}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("softplus"), FORMS[os.environ["FORM"]])
