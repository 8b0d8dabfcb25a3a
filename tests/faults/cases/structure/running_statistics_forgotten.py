"""A batch norm does not move its running statistics; the training goes on unharmed, the evaluation will not."""

import torch.nn.functional as F
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "norm1"}


def plant(training: Training) -> None:
    norm = modules(training, nn.BatchNorm2d)[0]

    def forward(x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, norm.weight, norm.bias, training=True, eps=norm.eps)

    replace(norm, forward)
