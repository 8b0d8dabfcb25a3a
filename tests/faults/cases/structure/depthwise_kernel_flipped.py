"""A depthwise convolution turns its kernel around, as the textbooks' convolution does."""

import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("unet",)
MODES = ("cpu", "compile", "lazy")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "block1.depthwise"}


def plant(training: Training) -> None:
    conv = training.model.get_submodule("block1.depthwise")
    weight, bias = conv.get_parameter("weight"), conv.get_parameter("bias")

    def forward(x: Tensor) -> Tensor:
        return F.conv2d(x, weight.flip((2, 3)), bias, padding=1, groups=len(weight))

    replace(conv, forward)
