"""Kernels of `_fused_adam_` and `_fused_adamw_`, which update the lists of tensors that they take, and of the
functional forms of these ops.

    m = m + (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)

Weight decay replaces g with g + weight_decay * p (Adam), or p with p * (1 - lr * weight_decay) (AdamW). Each torch
operation rounds to the dtype of its tensors; factors that depend only on the step t are computed in float64. Source:
torch/optim/adam.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Tensor = torch.Tensor


Update = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, float], Tensor]
"""Computes the new parameter from the parameter (decayed, for AdamW), both moments, lr / (1 - beta1^t),
sqrt(1 - beta2^t) and eps."""


@dataclass(frozen=True, slots=True)
class FusedAdam:
    """Adam with one formula for the update. Its method `in_place` has the signature of the fused ops.

    `decoupled` selects AdamW's weight decay. New moments are rounded to the dtype `moments` before they are used and
    stored (None: they are not rounded). Everything is computed in `dtype` (None: the dtype of the tensors).
    """

    update: Update
    decoupled: bool
    moments: torch.dtype | None = None
    dtype: torch.dtype | None = None

    def in_place(
        self,
        self_: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
        *,
        lr: float | Tensor,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        """Write parameters, moments and, if there is a `grad_scale`, gradients; write nothing if `found_inf` is 1."""
        if isinstance(lr, Tensor):
            lr = lr.to(torch.float64).reshape(())
        lists = (self_, grads, exp_avgs, exp_avg_sqs, *((max_exp_avg_sqs,) if amsgrad else ()))
        for place, step in enumerate(state_steps):
            stored = [tensors[place] for tensors in lists]
            wide = stored if self.dtype is None else [tensor.to(self.dtype) for tensor in stored]
            parameter, raw_gradient, first, second, *largest = wide
            unscaled = raw_gradient if grad_scale is None else raw_gradient / grad_scale
            gradient = -unscaled if maximize else unscaled
            if weight_decay != 0 and self.decoupled:
                parameter = parameter * (1 - lr * weight_decay)
            elif weight_decay != 0:
                gradient = torch.add(gradient, parameter, alpha=weight_decay)

            first = torch.lerp(first, gradient.to(first.dtype), 1 - beta1)
            scaled = second * beta2
            squared = gradient.to(scaled.dtype)
            second = torch.addcmul(scaled, squared, squared, value=1 - beta2)
            if self.moments is not None:
                first, second = (moment.to(self.moments).to(moment.dtype) for moment in (first, second))
            largest = [torch.maximum(maximum, second) for maximum in largest]

            # tensors, not numbers: reading the step out of its tensor would stop a trace
            t = step.to(torch.float64).reshape(())
            step_size, root = lr / (1 - beta1**t), (1 - beta2**t).sqrt()
            parameter = self.update(parameter, first, largest[0] if largest else second, step_size, root, eps)
            for target, value in zip(stored, (parameter, unscaled, first, second, *largest), strict=True):
                # the op leaves gradients as they are unless it has divided them by a scale
                if target is not stored[1] or grad_scale is not None:
                    target.copy_(value if found_inf is None else torch.where(found_inf == 1, target, value))


def into_new_lists(in_place: Callable[..., None]) -> Callable[..., tuple[list[Tensor], ...]]:
    """Return the functional form of `in_place`, which returns new lists in place of writing to its first five lists."""

    def functional(*lists: Any, **numbers: Any) -> tuple[list[Tensor], ...]:
        *written, state_steps = lists
        copies = tuple([tensor.clone() for tensor in tensors] for tensors in written)
        in_place(*copies, state_steps, **numbers)
        return copies

    return functional


def by_the_book(p: Tensor, m: Tensor, v: Tensor, step_size: Tensor, root: Tensor, eps: float) -> Tensor:
    """Return p + (-lr / (1 - beta1^t) * m) / (sqrt(v) / sqrt(1 - beta2^t) + eps)."""
    return p + (-step_size * m) / (v.sqrt() / root + eps)


def capturable(p: Tensor, m: Tensor, v: Tensor, step_size: Tensor, root: Tensor, eps: float) -> Tensor:
    """Return p + m / (sqrt(v) / (-a * sqrt(1 - beta2^t)) + eps / -a), a = lr / (1 - beta1^t)."""
    return p + m / (v.sqrt() / (root * -step_size) + eps / -step_size)


_adam, _adamw = (FusedAdam(by_the_book, decoupled) for decoupled in (False, True))
_adam_capturable, _adamw_capturable = (FusedAdam(capturable, decoupled) for decoupled in (False, True))
_adam_bf16, _adamw_bf16 = (FusedAdam(by_the_book, decoupled, moments=torch.bfloat16) for decoupled in (False, True))
_adam_fp64, _adamw_fp64 = (FusedAdam(by_the_book, decoupled, dtype=torch.float64) for decoupled in (False, True))

adam_decomposed, adamw_decomposed = _adam.in_place, _adamw.in_place
adam_capturable, adamw_capturable = _adam_capturable.in_place, _adamw_capturable.in_place
adam_bf16_moments, adamw_bf16_moments = _adam_bf16.in_place, _adamw_bf16.in_place
adam_fp64, adamw_fp64 = _adam_fp64.in_place, _adamw_fp64.in_place

functional_adam_decomposed = into_new_lists(adam_decomposed)
functional_adam_capturable = into_new_lists(adam_capturable)
functional_adam_bf16_moments = into_new_lists(adam_bf16_moments)
functional_adam_fp64 = into_new_lists(adam_fp64)
functional_adamw_decomposed = into_new_lists(adamw_decomposed)
functional_adamw_capturable = into_new_lists(adamw_capturable)
functional_adamw_bf16_moments = into_new_lists(adamw_bf16_moments)
functional_adamw_fp64 = into_new_lists(adamw_fp64)
