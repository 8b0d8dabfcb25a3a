"""Optimizers written out, in pieces that a case can replace: SGD, AdamW and SAM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent with momentum and weight decay: v <- mu v + g + wd p;  p <- p - lr v."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad + group["weight_decay"] * p, group)

    def update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        velocity = self.velocity(p, gradient, group["momentum"])
        p.add_(velocity, alpha=-group["lr"])

    def velocity(self, p: Tensor, gradient: Tensor, momentum: float) -> Tensor:
        state = self.state[p]
        if "velocity" not in state:
            state["velocity"] = torch.zeros_like(p)
        velocity: Tensor = state["velocity"].mul_(momentum).add_(gradient)
        return velocity


class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2)."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, group)

    def update(self, p: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        self.decay(p, group)
        self.count(p)
        first, second = self.moments(p, gradient, *group["betas"])
        p.add_(self.direction(p, first, second, group), alpha=-group["lr"])

    def decay(self, p: Tensor, group: dict[str, Any]) -> None:
        p.mul_(1 - group["lr"] * group["weight_decay"])

    def count(self, p: Tensor) -> None:
        self.state[p]["step"] = self.state[p].get("step", 0) + 1

    def moments(self, p: Tensor, gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
        state = self.state[p]
        if "exp_avg" not in state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        return state["exp_avg"], state["exp_avg_sq"]

    def direction(self, p: Tensor, first: Tensor, second: Tensor, group: dict[str, Any]) -> Tensor:
        beta1, beta2 = group["betas"]
        steps = self.state[p]["step"]
        unbiased = second / (1 - beta2**steps)
        direction: Tensor = first / (1 - beta1**steps) / (unbiased.sqrt() + group["eps"])
        return direction


class SAM(Optimizer):
    """Sharpness-aware minimization (Foret et al. 2021, algorithm 1) around SGD: the gradient is taken uphill."""

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.9, rho: float = 0.05) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "rho": rho})
        self.inner = torch.optim.SGD(self.param_groups, lr=lr, momentum=momentum)
        self.param_groups = self.inner.param_groups
        self.state = self.inner.state
        self.weights: dict[Tensor, Tensor] = {}

    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # type: ignore[override]  # SAM needs two losses
        """Step with the gradient of `closure` at the top of the climb; return the loss before it.

        The closure does not zero the gradients: they are those of one loss each time it is called.
        """
        loss = closure()
        with torch.no_grad():
            self.climb()
        self.zero_grad()
        closure()
        with torch.no_grad():
            self.restore()
        self.inner.step()
        return loss

    def climb(self) -> None:
        scale = self.scale()
        for p in self.parameters():
            assert p.grad is not None
            self.weights[p] = p.detach().clone()
            p.add_(p.grad * scale)

    def scale(self) -> Tensor:
        norm = torch.stack([p.grad.norm() for p in self.parameters() if p.grad is not None]).norm()
        scale: Tensor = self.param_groups[0]["rho"] / (norm + 1e-12)
        return scale

    def restore(self) -> None:
        for p, weight in self.weights.items():
            p.copy_(weight)

    def parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]
