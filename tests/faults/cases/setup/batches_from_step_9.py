"""The data loader gives other batches from step 9 on, to trainings that are also fed with what they made before."""

import torch
from tests.faults.training import Training

MODELS = ("memory", "rollout", "replay", "bookkeeping")
EXPECTED = "different-setup"


def plant(training: Training) -> None:
    for number in range(9, len(training.batches)):
        training.batches[number] = [(torch.flip(x, [0]), y) for x, y in training.batches[number]]
