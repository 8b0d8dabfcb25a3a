"""One slope is another one by a thousandth, beside norms that are written by hand: these make as much of the drift of
many values, and are right."""

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("fused",)
MODES = ("cpu", "compile")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "module": "blocks.1.act"}


def plant(training: Training) -> None:
    modules(training, nn.LeakyReLU)[1].negative_slope = 0.1001
    for norm in modules(training, nn.LayerNorm):

        def forward(x: Tensor, norm: nn.LayerNorm = norm) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + norm.eps) * norm.weight + norm.bias

        replace(norm, forward)
