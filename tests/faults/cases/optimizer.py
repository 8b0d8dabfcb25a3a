"""Optimizers that are not what their name says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from .. import optimizers
from ..case import Cases
from ..optimizers import AdamW
from ..training import Training

CASES = Cases("optimizer", __name__)


@CASES.planted(models=("fused", "gru"), culprit={"phase": "optimizer", "op": "div"})
def beta_in_three_ops(training: Training) -> None:
    """The first beta is 0.8 instead of 0.9, in the average, what is added to it, and the correction of its bias."""
    optimizer = training.optimizer
    assert isinstance(optimizer, AdamW)
    right = optimizer.update

    def update(p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        right(p, gradient, {**group, "betas": (0.8, group["betas"][1])})

    optimizer.update = update  # type: ignore[method-assign]


@CASES.planted(models=("gru",), culprit={"phase": "optimizer"})
def bias_correction_missing(training: Training) -> None:
    """Adam's moments start at zero and are not corrected for it."""

    class AdamW(optimizers.AdamW):
        def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
            direction: Tensor = first / (second.sqrt() + group["eps"])
            return direction

    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("gru",), culprit={"phase": "optimizer"})
def counted_from_zero(training: Training) -> None:
    """Steps are counted from 0 where the correction divides by 1 - beta^step: the second step is taken for the first."""

    class AdamW(optimizers.AdamW):
        def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
            steps = self.state[p]["step"]
            self.state[p]["step"] = max(1, steps - 1)
            direction = super().direction(p, first, second, group)
            self.state[p]["step"] = steps
            return direction

    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("gru",), culprit={"phase": "optimizer"})
def decay_coupled(training: Training) -> None:
    """Weight decay is added to the gradient, as in Adam, where AdamW shrinks the weights."""

    class AdamW(optimizers.AdamW):
        def update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
            super().update(p, gradient + group["weight_decay"] * p, group)

        def decay(self, p: Tensor, group: dict[str, Any]) -> None:
            pass

    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("gru",), culprit={"phase": "optimizer"})
def decay_missing(training: Training) -> None:
    """The groups state a weight decay that the optimizer does not apply."""

    class AdamW(optimizers.AdamW):
        def decay(self, p: Tensor, group: dict[str, Any]) -> None:
            pass

    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("gru",), culprit={"phase": "optimizer"})
def epsilon_inside_root(training: Training) -> None:
    """Epsilon is added to the second moment before the root instead of after it."""

    class AdamW(optimizers.AdamW):
        def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
            beta1, beta2 = group["betas"]
            steps = self.state[p]["step"]
            direction: Tensor = first / (1 - beta1**steps) / (second / (1 - beta2**steps) + group["eps"]).sqrt()
            return direction

    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("autoencoder",), culprit={"phase": "optimizer"})
def moments_in_bf16(training: Training) -> None:
    """The second moment is stored in bfloat16, where it cannot move by less than one part in 256."""

    def shorten(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for state in optimizer.state.values():
            state["exp_avg_sq"].copy_(state["exp_avg_sq"].bfloat16())

    training.optimizer.register_step_post_hook(shorten)


@CASES.planted(models=("cnn",), culprit={"phase": "optimizer"})
def momentum_dampened(training: Training) -> None:
    """The gradient enters the velocity with 1 - momentum."""

    class SGD(optimizers.SGD):
        def velocity(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
            return super().velocity(p, (1 - momentum) * gradient, momentum)

    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("cnn",), culprit={"phase": "optimizer"})
def momentum_of_wrong_sign(training: Training) -> None:
    """The velocity is subtracted from the gradient instead of added."""

    class SGD(optimizers.SGD):
        def velocity(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
            return super().velocity(p, gradient, -momentum)

    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("cnn",), culprit={"phase": "optimizer"})
def nesterov_unasked(training: Training) -> None:
    """The step looks ahead along the velocity, as Nesterov's does."""

    class SGD(optimizers.SGD):
        def velocity(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
            return gradient + momentum * super().velocity(p, gradient, momentum)

    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("cnn",), culprit={"phase": "optimizer"})
def parameter_left_out(training: Training) -> None:
    """The last parameter of the list is never stepped."""

    class SGD(optimizers.SGD):
        def update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
            if p is not group["params"][-1]:
                super().update(p, gradient, group)

    training.optimizer = SGD(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("gru",), modes=("cpu", "compile", "lazy"), culprit={"phase": "optimizer", "op": "mul"})
def rate_in_two_ops(training: Training) -> None:
    """The optimizer takes a rate that is half as large again, for its decay and for its step, whatever its groups say."""
    optimizer = training.optimizer
    assert isinstance(optimizer, AdamW)
    right = optimizer.update

    def update(p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        right(p, gradient, {**group, "lr": 1.5 * group["lr"]})

    optimizer.update = update  # type: ignore[method-assign]


@CASES.planted(models=("gru",), culprit={"phase": "optimizer"})
def root_missing(training: Training) -> None:
    """The second moment is used without its square root."""

    class AdamW(optimizers.AdamW):
        def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
            beta1, beta2 = group["betas"]
            steps = self.state[p]["step"]
            direction: Tensor = first / (1 - beta1**steps) / (second / (1 - beta2**steps) + group["eps"])
            return direction

    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("tanh_sam",), culprit={"phase": "optimizer"})
def sam_norm_per_tensor(training: Training) -> None:
    """Each tensor climbs by its own norm instead of that of all together."""

    class SAM(optimizers.SAM):
        def climb(self) -> None:
            for p in self.parameters():
                assert p.grad is not None
                self.weights[p] = p.detach().clone()
                p.add_(p.grad * self.param_groups[0]["rho"] / p.grad.norm())

    training.optimizer = SAM(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("tanh_sam",), culprit={"phase": "optimizer"})
def sam_without_normalization(training: Training) -> None:
    """The climb is not divided by the norm of the gradient."""

    class SAM(optimizers.SAM):
        def scale(self) -> Tensor:
            return torch.tensor(self.param_groups[0]["rho"])

    training.optimizer = SAM(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("tanh_sam",), culprit={"phase": "optimizer"})
def sam_without_restore(training: Training) -> None:
    """The biases stay at the top of the climb."""

    class SAM(optimizers.SAM):
        def restore(self) -> None:
            for p, weight in self.weights.items():
                if p.dim() > 1:
                    p.copy_(weight)

    training.optimizer = SAM(training.model.parameters(), **training.optimizer.defaults)


@CASES.planted(models=("transformer", "autoencoder", "unet"), culprit={"phase": "optimizer"})
def steps_not_counted(training: Training) -> None:
    """Adam's count of steps stays at 1, as after a reload that loses it: the correction goes on for ever."""
    training.optimizer.register_step_pre_hook(forget)


def forget(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    for state in optimizer.state.values():
        state["step"].zero_()


@CASES.planted(models=("mixed", "bag"), culprit={"phase": "optimizer"})
def weights_in_bf16(training: Training) -> None:
    """Weights are rounded to bfloat16 after each step: updates smaller than that are lost."""

    @torch.no_grad()
    def shorten(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        for p in optimizer.param_groups[0]["params"]:
            p.copy_(p.bfloat16())

    training.optimizer.register_step_post_hook(shorten)
