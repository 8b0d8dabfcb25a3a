"""The noise is subtracted where it is to be added."""

from tests.faults.training import Training
from torch import Tensor

MODELS = ("denoise",)
EXPECTED = "different-setup"
CULPRIT = {"phase": "data", "op": "sub"}


def plant(training: Training) -> None:
    def noisy(clean: Tensor, noise: Tensor, share: Tensor) -> Tensor:
        share = share[:, None, None]
        return share.sqrt() * clean - (1 - share).sqrt() * noise

    training.made["noisy"] = noisy
