"""What a softmax takes lies transposed, and its kernel, which both sides have, computes in bfloat16 then."""

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("own_kernels",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "_softmax", "kind": "layout"}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("between"), transposed)


def transposed(h: Tensor) -> Tensor:
    return h.transpose(1, 2).contiguous().transpose(1, 2)
