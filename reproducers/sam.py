"""Sharpness-Aware Minimization, written from the paper: a wrapper around any torch optimizer.

P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur, "Sharpness-Aware Minimization for Efficiently Improving
Generalization", ICLR 2021, arXiv 2010.01412. One step of its Algorithm 1, with p = 2 in equation (2):

    g     = grad L(w)
    e(w)  = rho * g / ||g||_2              the norm is taken over all parameters together
    w'    = base step from w with grad L(w + e(w)), where e(w) is treated as a constant (equation 3)

Call a method after each pass; `first_step` climbs to w + e(w), and `second_step` returns to w and takes the base step:

    loss(model(x), y).backward();  optimizer.first_step(zero_grad=True)
    loss(model(x), y).backward();  optimizer.second_step(zero_grad=True)

Or call one method for both passes, `optimizer.step(closure)`, where the closure zeroes the gradients, computes the loss
and calls backward. `python reproducers/sam_tanh.py` trains with this optimizer.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

SMALLEST_NORM = 1e-12  # prevents 0/0 for a zero gradient; any larger norm stays unchanged


class SAM(Optimizer):
    """Step `base_optimizer(params, **kwargs)` with the gradient at a point `rho` uphill of the weights.

    Groups and state are the base optimizer's own objects: a learning rate scheduler may take either optimizer, and
    `state_dict()` includes the base's momentum. Save the state between steps, not between passes.
    """

    def __init__(
        self,
        params: ParamsT,
        base_optimizer: Callable[..., Optimizer] = torch.optim.SGD,
        rho: float = 0.05,
        **kwargs: Any,
    ) -> None:
        if not rho >= 0.0:
            raise ValueError(f"rho must be at least 0, got {rho}")
        super().__init__(params, {"rho": rho, **kwargs})
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.defaults = {**self.base_optimizer.defaults, "rho": rho}
        self.param_groups = self.base_optimizer.param_groups
        self.state = self.base_optimizer.state
        self._weights: dict[Tensor, Tensor] = {}

    def first_step(self, zero_grad: bool = False) -> None:
        """Climb from w to w + rho * g / ||g||."""
        if self._weights:
            raise RuntimeError("first_step was called twice without second_step")
        with torch.no_grad():
            norm = self._gradient_norm()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    # w itself is kept and restored: in floating point (w + e) - e is not w. The climb creates a new
                    # tensor, since in lazy mode `copy_` would not stay in the graph.
                    self._weights[p] = p.data
                    p.data = p + p.grad / norm * group["rho"]
        if zero_grad:
            self.zero_grad()

    def second_step(self, zero_grad: bool = False) -> None:
        """Return to w, then let the base optimizer step with the gradient found at w + e."""
        if not self._weights:
            raise RuntimeError("second_step was called without first_step")
        for p, weight in self._weights.items():
            p.data = weight
        self._weights.clear()
        self.base_optimizer.step()
        if zero_grad:
            self.zero_grad()

    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # type: ignore[override]  # SAM needs two losses
        """Do both passes and return the loss at w."""
        with torch.enable_grad():
            loss = closure()
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()
        return loss

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to both optimizers, with this optimizer's rho unless the group has its own."""
        if "base_optimizer" not in self.__dict__:  # called by Optimizer.__init__
            return super().add_param_group(param_group)
        param_group.setdefault("rho", self.defaults["rho"])
        self.base_optimizer.add_param_group(param_group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`, including the base's state, and share it with the base again."""
        super().load_state_dict(state_dict)
        self.base_optimizer.__setstate__({"state": self.state, "param_groups": self.param_groups})

    def _gradient_norm(self) -> Tensor:
        # Tensor.norm and stack stay in the lazy graph; linalg.vector_norm and clip_grad_norm_ do not.
        grads = [g for group in self.param_groups for p in group["params"] if (g := p.grad) is not None]
        if not grads:
            raise RuntimeError("no parameter has a gradient: call backward before first_step")
        norm: Tensor = torch.stack([g.norm() for g in grads]).norm().clamp_min(SMALLEST_NORM)
        return norm
