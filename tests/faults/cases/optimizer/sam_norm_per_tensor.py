"""Each tensor climbs by its own norm instead of that of all together."""

from tests.faults import optimizers
from tests.faults.training import Training

MODELS = ("tanh_sam",)
EXPECTED = "beyond-rounding"
CULPRIT = {"phase": "optimizer"}


class SAM(optimizers.SAM):
    def climb(self) -> None:
        for p in self.parameters():
            assert p.grad is not None
            self.weights[p] = p.detach().clone()
            p.add_(p.grad * self.param_groups[0]["rho"] / p.grad.norm())


def plant(training: Training) -> None:
    training.optimizer = SAM(training.model.parameters(), **training.optimizer.defaults)
