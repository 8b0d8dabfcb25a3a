"""A transposed convolution whose windows do not overlap, as a product."""

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("unet",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    up = modules(training, nn.ConvTranspose2d)[0]

    def forward(x: Tensor) -> Tensor:
        assert up.bias is not None
        b, _, h, w = x.shape
        spread = torch.einsum("bchw,cdij->bdhiwj", x, up.weight)
        return spread.reshape(b, -1, 2 * h, 2 * w) + up.bias[:, None, None]

    replace(up, forward)
