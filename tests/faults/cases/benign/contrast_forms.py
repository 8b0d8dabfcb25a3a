"""The logarithm of a softmax of large logits by another formula."""

import os
from collections.abc import Callable

from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("contrast",)
MODES = (
    "cpu,env.FORM=logsumexp",
    "cpu,env.FORM=shifted",
    "compile,env.FORM=logsumexp",
    "compile,env.FORM=shifted",
    "lazy,env.FORM=logsumexp",
)
EXPECTED = "rounding"


def shifted(x: Tensor) -> Tensor:
    return x - x.detach().amax(-1, keepdim=True)


FORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
    "shifted": lambda x: shifted(x) - shifted(x).logsumexp(-1, keepdim=True),
}


def plant(training: Training) -> None:
    (one,) = modules(training, nn.LogSoftmax)
    replace(one, FORMS[os.environ["FORM"]])
