"""The logarithm of a softmax of large logits by another formula."""

import os
from collections.abc import Callable

from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("contrast",)
MODES = (
    "cpu,env.FORM=sum",
    "cpu,env.FORM=logsumexp",
    "cpu,env.FORM=double",
    "compile,env.FORM=sum",
    "lazy,env.FORM=sum",
)
EXPECTED = "rounding"

FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: (x - x.amax(-1, keepdim=True)) - (x - x.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True).log(),
    "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
    "double": lambda x: x.double().log_softmax(-1).float(),
}


def plant(training: Training) -> None:
    (one,) = modules(training, nn.LogSoftmax)
    replace(one, FORMS[os.environ["FORM"]])
