"""The root mean square norms of a model in bfloat16 by torch's own op."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("rotary", "standardized")
MODES = ("cpu", "compile")
EXPECTED = "rounding"


def plant(training: Training) -> None:
    for norm in training.model.modules():
        if type(norm).__name__ == "RootMeanSquareNorm":
            replace(norm, by_kernel(norm))


def by_kernel(norm: Any) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        out: Tensor = F.rms_norm(x.float(), x.shape[-1:], eps=1e-5).to(x.dtype) * norm.weight
        return out

    return forward
