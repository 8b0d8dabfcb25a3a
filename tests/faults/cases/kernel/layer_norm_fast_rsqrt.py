"""Layer norm takes its inverse square root with 12 bits, as a hardware estimate without a refining step."""

import torch
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("transformer", "gru")
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "forward", "op": "rsqrt"}


def plant(training: Training) -> None:
    norm = modules(training, nn.LayerNorm)[0]

    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + norm.eps)
        return centred * (inverse + inverse * 2**-12 * torch.sin(1e4 * inverse)) * norm.weight + norm.bias

    replace(norm, forward)
