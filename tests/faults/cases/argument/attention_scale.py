"""One block divides by the square root of 9 instead of the heads' width 8."""

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("transformer",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "blocks.1.attention.core"}


def plant(training: Training) -> None:
    core = training.model.get_submodule("blocks.1.attention.core")
    right = core.forward

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = right(q * (8 / 9) ** 0.5, k, v)
        return out

    replace(core, forward)
