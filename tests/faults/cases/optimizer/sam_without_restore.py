"""The biases stay at the top of the climb."""

from tests.faults import optimizers
from tests.faults.training import Training

MODELS = ("tanh_sam",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class SAM(optimizers.SAM):
    def restore(self) -> None:
        for p, weight in self.weights.items():
            if p.dim() > 1:
                p.copy_(weight)


def plant(training: Training) -> None:
    training.optimizer = SAM(training.model.parameters(), **training.optimizer.defaults)
