"""The mask is drawn once and used for ever."""

import torch
import torch.nn.functional as F
from tests.faults.training import Training, modules, replace
from torch import Tensor, nn

MODELS = ("autoencoder",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "forward", "module": "drop", "step": 1}


def plant(training: Training) -> None:
    drop = modules(training, nn.Dropout)[0]
    masks: list[Tensor] = []

    def forward(x: Tensor) -> Tensor:
        if not masks:
            masks.append(F.dropout(torch.ones_like(x), drop.p))
        return x * masks[0]

    replace(drop, forward)
