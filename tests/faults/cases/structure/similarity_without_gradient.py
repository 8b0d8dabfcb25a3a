"""The weights of the gate are detached: the pictures that it compares with learn nothing."""

import torch
import torch.nn.functional as F
from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("unet",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "backward", "module": "gate"}


def plant(training: Training) -> None:
    gate = training.model.get_submodule("gate")
    pictures, mix = gate.get_parameter("pictures"), gate.get_parameter("mix")

    def forward(x: Tensor) -> Tensor:
        alike = torch.sigmoid(F.cosine_similarity(x.flatten(2), pictures, dim=2)).detach()
        return x + torch.einsum("bchw,bc,cd->bdhw", x, alike, mix)

    replace(gate, forward)
