"""Kernels of `_fused_adam_` and `_fused_adamw_`, which write their lists, and of their functional twins.

    m = m + (1 - beta1) * (g - m)
    v = beta2 * v + (1 - beta2) * g * g
    p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)

with g + weight_decay * p for g (Adam), or p * (1 - lr * weight_decay) for p (AdamW). Each torch operation
rounds in the dtype of its tensors; what depends on the step t alone is computed in float64. Source:
torch/optim/adam.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class State:
    """One parameter and all that is written with it; `largest` is there with amsgrad."""

    parameter: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    largest: Tensor | None = None

    def to(self, dtype: torch.dtype) -> State:
        largest = None if self.largest is None else self.largest.to(dtype)
        parameter, gradient = self.parameter.to(dtype), self.gradient.to(dtype)
        return State(parameter, gradient, self.first.to(dtype), self.second.to(dtype), largest)


@dataclass(frozen=True, slots=True)
class AdamSettings:
    """The numbers of a step; `decoupled` is AdamW's weight decay."""

    lr: float | Tensor
    beta1: float
    beta2: float
    weight_decay: float
    eps: float
    amsgrad: bool
    maximize: bool
    decoupled: bool


Update = Callable[[State, State, Tensor, AdamSettings], Tensor]


@dataclass(frozen=True, slots=True)
class FusedAdam:
    """Adam with one formula, under the signatures of the ops.

    `update` gives the new parameter. `moments` is the precision to which both moments are rounded when stored,
    `dtype` the one in which everything is computed (None: that of the tensors).
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
        """Write parameters, moments and, where there is a `grad_scale`, gradients; nothing if `found_inf` is
        1."""
        if isinstance(lr, Tensor):
            lr = lr.to(torch.float64).reshape(())
        settings = AdamSettings(lr, beta1, beta2, weight_decay, eps, amsgrad, maximize, self.decoupled)
        for place, step in enumerate(state_steps):
            largest = max_exp_avg_sqs[place] if amsgrad else None
            old = State(self_[place], grads[place], exp_avgs[place], exp_avg_sqs[place], largest)
            read = old if self.dtype is None else old.to(self.dtype)
            new = self._followed(read, step, settings, grad_scale)
            for target, value in _pairs(old, new, gradient=grad_scale is not None):
                target.copy_(value if found_inf is None else torch.where(found_inf == 1, target, value))

    def _followed(self, old: State, step: Tensor, settings: AdamSettings, grad_scale: Tensor | None) -> State:
        stored = old.gradient if grad_scale is None else old.gradient / grad_scale
        gradient = -stored if settings.maximize else stored
        parameter = old.parameter
        if settings.weight_decay != 0 and settings.decoupled:
            parameter = parameter * (1 - settings.lr * settings.weight_decay)
        elif settings.weight_decay != 0:
            gradient = torch.add(gradient, parameter, alpha=settings.weight_decay)
        first = torch.lerp(old.first, gradient.to(old.first.dtype), 1 - settings.beta1)
        scaled = old.second * settings.beta2
        squared = gradient.to(scaled.dtype)
        second = torch.addcmul(scaled, squared, squared, value=1 - settings.beta2)
        if self.moments is not None:
            first, second = (one.to(self.moments).to(one.dtype) for one in (first, second))
        largest = None if old.largest is None else torch.maximum(old.largest, second)
        new = State(parameter, stored, first, second, largest)
        return replace(new, parameter=self.update(old, new, step, settings))


def into_new_lists(in_place: Callable[..., None]) -> Callable[..., tuple[list[Tensor], ...]]:
    """The functional twin: the five lists as `in_place` would write them, new ones."""

    def functional(*lists: Any, **numbers: Any) -> tuple[list[Tensor], ...]:
        *written, state_steps = lists
        copies = tuple([one.clone() for one in tensors] for tensors in written)
        in_place(*copies, state_steps, **numbers)
        return copies

    return functional


def by_the_book(old: State, new: State, step: Tensor, settings: AdamSettings) -> Tensor:
    """p + (-lr / (1 - beta1^t) * m) / (sqrt(v) / sqrt(1 - beta2^t) + eps)."""
    step_size, root = _step_numbers(step, settings)
    denominator = _second(new).sqrt() / root + settings.eps
    return new.parameter + (-step_size * new.first) / denominator


def capturable(old: State, new: State, step: Tensor, settings: AdamSettings) -> Tensor:
    """p + m / (sqrt(v) / (-a * sqrt(1 - beta2^t)) + eps / -a) with a = lr / (1 - beta1^t): the step size
    inside."""
    step_size, root = _step_numbers(step, settings)
    denominator = _second(new).sqrt() / (root * -step_size) + settings.eps / -step_size
    return new.parameter + new.first / denominator


def _second(state: State) -> Tensor:
    return state.second if state.largest is None else state.largest


def _step_numbers(step: Tensor, settings: AdamSettings) -> tuple[Tensor, Tensor]:
    """lr / (1 - beta1^t) and sqrt(1 - beta2^t), in float64."""
    t = step.to(torch.float64).reshape(())
    return settings.lr / (1 - settings.beta1**t), (1 - settings.beta2**t).sqrt()


def _pairs(old: State, new: State, *, gradient: bool) -> list[tuple[Tensor, Tensor]]:
    pairs = [(old.parameter, new.parameter), (old.first, new.first), (old.second, new.second)]
    if old.largest is not None and new.largest is not None:
        pairs.append((old.largest, new.largest))
    return [*pairs, (old.gradient, new.gradient)] if gradient else pairs


_adam = FusedAdam(by_the_book, decoupled=False)
_adamw = FusedAdam(by_the_book, decoupled=True)
_adam_capturable = FusedAdam(capturable, decoupled=False)
_adamw_capturable = FusedAdam(capturable, decoupled=True)
_adam_bf16 = FusedAdam(by_the_book, decoupled=False, moments=torch.bfloat16)
_adamw_bf16 = FusedAdam(by_the_book, decoupled=True, moments=torch.bfloat16)

_adam_fp64 = FusedAdam(by_the_book, decoupled=False, dtype=torch.float64)
_adamw_fp64 = FusedAdam(by_the_book, decoupled=True, dtype=torch.float64)

adam_decomposed = _adam.in_place
adam_capturable = _adam_capturable.in_place
adam_bf16_moments = _adam_bf16.in_place
adam_fp64 = _adam_fp64.in_place
adamw_decomposed = _adamw.in_place
adamw_capturable = _adamw_capturable.in_place
adamw_bf16_moments = _adamw_bf16.in_place
adamw_fp64 = _adamw_fp64.in_place

functional_adam_decomposed = into_new_lists(adam_decomposed)
functional_adam_capturable = into_new_lists(adam_capturable)
functional_adam_bf16_moments = into_new_lists(adam_bf16_moments)
functional_adam_fp64 = into_new_lists(adam_fp64)
functional_adamw_decomposed = into_new_lists(adamw_decomposed)
functional_adamw_capturable = into_new_lists(adamw_capturable)
functional_adamw_bf16_moments = into_new_lists(adamw_bf16_moments)
functional_adamw_fp64 = into_new_lists(adamw_fp64)
