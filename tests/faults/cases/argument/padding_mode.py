"""A convolution pads by reflection instead of zeros."""

import torch.nn.functional as F
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("cnn",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "conv1"}


def plant(training: Training) -> None:
    conv = modules(training, nn.Conv2d)[0]

    def forward(x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), conv.weight, conv.bias)

    replace(conv, forward)
