"""AdamW with its corrections folded into the step size and the moments by lerp, as torch does it."""

from typing import Any

from tests.faults import optimizers
from tests.faults.training import Training
from torch import Tensor

MODELS = ("gru",)
EXPECTED = "rounding"


class AdamW(optimizers.AdamW):
    def moments(self, p: Tensor, gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
        if "exp_avg" not in self.state[p]:
            return super().moments(p, gradient, beta1, beta2)
        first, second = self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"]
        return first.lerp_(gradient, 1 - beta1), second.lerp_(gradient * gradient, 1 - beta2)

    def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        steps = self.state[p]["step"]
        root = (1 - beta2**steps) ** 0.5
        direction: Tensor = first * (root / (1 - beta1**steps)) / (second.sqrt() + group["eps"] * root)
        return direction


def plant(training: Training) -> None:
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)
