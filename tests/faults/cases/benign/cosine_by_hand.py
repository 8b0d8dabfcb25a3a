"""The cosine of vectors as the product of normalized ones."""

import torch
import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("unet",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    gate = training.model.get_submodule("gate")
    pictures, mix = gate.get_parameter("pictures"), gate.get_parameter("mix")

    def forward(x: Tensor) -> Tensor:
        cosine = (F.normalize(x.flatten(2), dim=2) * F.normalize(pictures, dim=1)).sum(2)
        return x + torch.einsum("bchw,bc,cd->bdhw", x, torch.sigmoid(cosine), mix)

    replace(gate, forward)
