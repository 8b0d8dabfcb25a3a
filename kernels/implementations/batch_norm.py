"""Kernels of `native_batch_norm` and of the ops that take its part in compiled graphs.

In training the moments of each channel are computed in several ways; in evaluation they are the running ones.
Then ((x - mean) * invstd) * weight + bias. bfloat16 and float16 are computed in float32 and rounded once, as in
ATen; the `bf16` kernels round each operation to bfloat16 instead.

`native_batch_norm` writes its arguments running_mean and running_var although its schema does not say so. Every
kernel here does the same: momentum * mean + (1 - momentum) * running_mean, and the unbiased variance for
running_var.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from . import moments
from .precision import computing, statistics_dtype, wide_or_none

Tensor = torch.Tensor
Normalized = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Batch norm with one way to compute moments, under the signature of each op.

    `dtype` is the one in which each operation rounds; None is the one in which ATen computes.
    """

    moments: moments.Moments
    dtype: torch.dtype | None = None

    def native(
        self,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Normalized:
        """Normalize and, in training, update the running statistics in place."""
        result, *current = self._normalize(input, weight, bias, running_mean, running_var, training, eps)
        for running, batch in zip((running_mean, running_var), current, strict=True):
            if running is not None and batch is not None:
                _follow(running, batch, momentum)
        return result

    def functional(
        self,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor,
        running_var: Tensor,
        training: bool,
        momentum: float,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Normalize and return the running statistics that follow, new ones."""
        result, mean, var = self._normalize(input, weight, bias, running_mean, running_var, training, eps)
        return *result, _followed(running_mean, mean, momentum), _followed(running_var, var, momentum)

    def no_training(
        self,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor,
        running_var: Tensor,
        momentum: float,
        eps: float,
    ) -> Normalized:
        """Normalize by the running statistics."""
        return self._normalize(input, weight, bias, running_mean, running_var, False, eps)[0]

    def legit(self, input: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Normalized:
        """`native`, and without the running statistics the overload `no_stats`."""
        running = () if len(rest) == 5 else (None, None)
        return self.native(input, weight, bias, *running, *rest)

    def _normalize(
        self,
        input: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        training: bool,
        eps: float,
    ) -> tuple[Normalized, Tensor | None, Tensor | None]:
        """The op's three results and, in training, the batch's mean and unbiased variance."""
        kept = statistics_dtype(input, weight, bias, running_mean, running_var)
        dtype = self.dtype or computing(input.dtype)
        x = input.to(dtype)
        batch_mean = batch_var = None
        if training:
            mean, var = self._batch_moments(x)
            invstd = 1 / torch.sqrt(var + eps)
            save_mean, save_invstd = mean.to(kept), invstd.to(kept)
            n = input.numel() // input.shape[1]
            batch_mean, batch_var = mean, var * n / (n - 1)
        else:
            if running_mean is None or running_var is None:
                raise ValueError("batch norm needs running statistics in evaluation mode")
            mean = running_mean.to(dtype)
            invstd = 1 / torch.sqrt(running_var.to(dtype) + eps)
            save_mean, save_invstd = _saved_in_evaluation(input, mean, invstd, kept)
        y = (x - _per_channel(mean, x)) * _per_channel(invstd, x)
        weight_wide, bias_wide = wide_or_none(weight, dtype), wide_or_none(bias, dtype)
        if weight_wide is not None:
            y = y * _per_channel(weight_wide, x)
        if bias_wide is not None:
            y = y + _per_channel(bias_wide, x)
        return (y.to(input.dtype), save_mean, save_invstd), batch_mean, batch_var

    def _batch_moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if x.numel() == 0:
            raise ValueError(f"batch norm needs at least one element to train on, got {list(x.shape)}")
        mean, var = self.moments(x.transpose(0, 1).reshape(x.shape[1], -1))
        return mean.squeeze(1), var.squeeze(1)


def no_training_affine(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Normalized:
    """x * a + b with a = invstd * weight and b = bias - mean * a."""
    dtype = computing(input.dtype)
    x, mean = input.to(dtype), running_mean.to(dtype)
    invstd = 1 / torch.sqrt(running_var.to(dtype) + eps)
    factor = invstd if weight is None else invstd * weight.to(dtype)
    summand = -mean * factor if bias is None else bias.to(dtype) - mean * factor
    y = x * _per_channel(factor, x) + _per_channel(summand, x)
    kept = statistics_dtype(input, weight, bias, running_mean, running_var)
    return y.to(input.dtype), *_saved_in_evaluation(input, mean, invstd, kept)


def _followed(running: Tensor, batch: Tensor | None, momentum: float) -> Tensor:
    """momentum * batch + (1 - momentum) * running, in the dtype of `running`; a copy of it without a batch."""
    if batch is None:
        return running.clone()
    return (momentum * batch + (1 - momentum) * running.to(batch.dtype)).to(running.dtype)


def _follow(running: Tensor, batch: Tensor, momentum: float) -> None:
    """`_followed` in place, with its bits. Lazy mode can multiply and add in place, and leaves its graph to
    copy."""
    if running.dtype == batch.dtype:
        running.mul_(1 - momentum).add_(momentum * batch)
    else:
        running.copy_(_followed(running, batch, momentum))


def _saved_in_evaluation(input: Tensor, mean: Tensor, invstd: Tensor, kept: torch.dtype) -> tuple[Tensor, Tensor]:
    """What the op saves in evaluation: nothing on the CPU, the running statistics elsewhere."""
    if input.device.type in ("cpu", "lazy"):
        return input.new_empty(0, dtype=kept), input.new_empty(0, dtype=kept)
    return mean.to(kept), invstd.to(kept)


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    """[channels] -> [1, channels, 1, ...], to broadcast with x."""
    return values.reshape(1, -1, *(1 for _ in range(x.dim() - 2)))


_two_pass = BatchNorm(moments.two_pass)
_reversed_order = BatchNorm(moments.reversed_order)
_one_pass = BatchNorm(moments.one_pass)
_shifted = BatchNorm(moments.shifted)
_welford = BatchNorm(moments.welford)
_bf16 = BatchNorm(moments.two_pass, torch.bfloat16)
_fp64 = BatchNorm(moments.two_pass, torch.float64)

two_pass = _two_pass.native
reversed_order = _reversed_order.native
one_pass = _one_pass.native
shifted = _shifted.native
welford = _welford.native
bf16 = _bf16.native
fp64 = _fp64.native

functional_two_pass = _two_pass.functional
functional_reversed_order = _reversed_order.functional
functional_one_pass = _one_pass.functional
functional_shifted = _shifted.functional
functional_welford = _welford.functional
functional_bf16 = _bf16.functional
functional_fp64 = _fp64.functional

legit_two_pass = _two_pass.legit
legit_reversed_order = _reversed_order.legit
legit_one_pass = _one_pass.legit
legit_shifted = _shifted.legit
legit_welford = _welford.legit
legit_bf16 = _bf16.legit
legit_fp64 = _fp64.legit

no_training_two_pass = _two_pass.no_training
no_training_bf16 = _bf16.no_training
no_training_fp64 = _fp64.no_training
