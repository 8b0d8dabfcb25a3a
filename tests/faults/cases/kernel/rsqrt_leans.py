"""A kernel of rsqrt whose results are all too low, by eight units in the last place: rounding errs to both sides."""

from tests.faults.training import KERNELS, Training
from torch import Tensor

MODELS = ("standardized",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "op": "rsqrt"}


def plant(training: Training) -> None:
    KERNELS.impl("rsqrt", rsqrt, "CPU")


def rsqrt(x: Tensor) -> Tensor:
    return x.sqrt().reciprocal() * (1 - 2**-20)
