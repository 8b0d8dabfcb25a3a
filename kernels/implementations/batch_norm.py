"""Kernels of `native_batch_norm`, of the ops that replace it in compiled graphs, and of its backward.

In training, each kernel computes the moments of each channel in its own way; in evaluation, they are the running
statistics. The result is ((x - mean) * invstd) * weight + bias. bfloat16 and float16 are computed in float32 and
rounded once, as in ATen; the `bf16` kernels round each operation to bfloat16 instead.

`native_batch_norm` writes to its arguments running_mean and running_var, although its schema declares no writes. Every
kernel here does the same: running_mean becomes momentum * mean + (1 - momentum) * running_mean, and running_var is
updated likewise with the unbiased variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from . import moments
from .device_statistics import gradient_dtype, saves_in_evaluation, statistics_dtype
from .precision import Gradients, Normalized, Sum, computing, plain_sum, reversed_sum

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class BatchNorm:
    """Batch norm with one way to compute moments. Each public method has the signature of one of the ops.

    Each operation rounds to `dtype`; None means the dtype in which ATen computes.
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
            if running is None or batch is None:
                continue
            # This computes the same bits as `_updated`. In lazy mode, an in-place multiplication and addition stay in
            # the pending graph, but a copy ends the graph.
            if running.dtype == batch.dtype:
                running.mul_(1 - momentum).add_(momentum * batch)
            else:
                running.copy_(_updated(running, batch, momentum))
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
        """Normalize and return the next running statistics as new tensors."""
        result, mean, var = self._normalize(input, weight, bias, running_mean, running_var, training, eps)
        return *result, _updated(running_mean, mean, momentum), _updated(running_var, var, momentum)

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
        """Normalize with the running statistics."""
        return self._normalize(input, weight, bias, running_mean, running_var, False, eps)[0]

    def legit(self, input: Tensor, weight: Tensor | None, bias: Tensor | None, *remaining: Any) -> Normalized:
        """Normalize as `native` does. The overload `no_stats` takes no running statistics."""
        running = () if len(remaining) == 5 else (None, None)
        return self.native(input, weight, bias, *running, *remaining)

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
        """Return the op's three results and, in training, the batch's mean and unbiased variance."""
        saved_dtype = statistics_dtype(input, weight, bias, running_mean, running_var)
        dtype = self.dtype or computing(input.dtype)
        x = input.to(dtype)
        batch_mean = batch_var = None
        if training:
            if x.numel() == 0:
                raise ValueError(f"batch norm needs at least one element to train on, got {list(x.shape)}")
            # [channels, elements of a channel] -> [channels, 1] each
            mean, var = (moment.squeeze(1) for moment in self.moments(x.transpose(0, 1).reshape(x.shape[1], -1)))
            invstd = 1 / torch.sqrt(var + eps)
            save_mean, save_invstd = mean.to(saved_dtype), invstd.to(saved_dtype)
            # The op normalizes by the biased variance, and updates the running variance with the unbiased one.
            n = input.numel() // input.shape[1]
            batch_mean, batch_var = mean, var * n / (n - 1)
        else:
            if running_mean is None or running_var is None:
                raise ValueError("batch norm needs running statistics in evaluation mode")
            mean = running_mean.to(dtype)
            invstd = 1 / torch.sqrt(running_var.to(dtype) + eps)
            save_mean, save_invstd = _saved_in_evaluation(input, mean, invstd, saved_dtype)
        y = (x - _per_channel(mean, x)) * _per_channel(invstd, x)
        if weight is not None:
            y = y * _per_channel(weight.to(dtype), x)
        if bias is not None:
            y = y + _per_channel(bias.to(dtype), x)
        return (y.to(input.dtype), save_mean, save_invstd), batch_mean, batch_var


def no_training_affine(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Normalized:
    """Compute x * a + b with a = invstd * weight and b = bias - mean * a."""
    dtype = computing(input.dtype)
    x, mean = input.to(dtype), running_mean.to(dtype)
    invstd = 1 / torch.sqrt(running_var.to(dtype) + eps)
    factor = invstd if weight is None else invstd * weight.to(dtype)
    summand = -mean * factor if bias is None else bias.to(dtype) - mean * factor
    y = x * _per_channel(factor, x) + _per_channel(summand, x)
    saved_dtype = statistics_dtype(input, weight, bias, running_mean, running_var)
    return y.to(input.dtype), *_saved_in_evaluation(input, mean, invstd, saved_dtype)


def _updated(running: Tensor, batch: Tensor | None, momentum: float) -> Tensor:
    """Return momentum * batch + (1 - momentum) * running in the dtype of `running`.

    If `batch` is None, return a copy of `running`.
    """
    if batch is None:
        return running.clone()
    return (momentum * batch + (1 - momentum) * running.to(batch.dtype)).to(running.dtype)


def _saved_in_evaluation(
    input: Tensor, mean: Tensor, invstd: Tensor, saved_dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return the tensors that the op saves in evaluation: empty ones on the CPU, mean and invstd on CUDA."""
    if saves_in_evaluation(input):
        return mean.to(saved_dtype), invstd.to(saved_dtype)
    return input.new_empty(0, dtype=saved_dtype), input.new_empty(0, dtype=saved_dtype)


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    """Reshape [channels] -> [1, channels, 1, ...], to broadcast with x."""
    return values.reshape(1, -1, *(1 for _ in range(x.dim() - 2)))


@dataclass(frozen=True, slots=True)
class BatchNormBackward:
    """The three gradients, with one order of summation.

    With xhat = (x - mean) * invstd over n elements of a channel, the gradient of the input in training is (g - mean(g)
    - xhat * mean(g * xhat)) * invstd * weight. In evaluation the statistics are constants, and the gradient is g *
    (invstd * weight). `from_raw_sums` computes sum(g * (x - mean)) as sum(g * x) - mean * sum(g), which needs no second
    pass but cancels when the mean is large. Each operation rounds to `dtype`; None means the dtype in which ATen
    computes."""

    total: Sum = plain_sum
    from_raw_sums: bool = False
    dtype: torch.dtype | None = None

    def __call__(
        self,
        grad_out: Tensor,
        input: Tensor,
        weight: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        save_mean: Tensor | None,
        save_invstd: Tensor | None,
        train: bool,
        eps: float,
        output_mask: Sequence[bool],
    ) -> Gradients:
        dtype = self.dtype or computing(input.dtype)
        parameter_dtype = gradient_dtype(input, weight, running_mean, running_var, save_mean)
        g, x = grad_out.to(dtype), input.to(dtype)
        if train and save_mean is not None and save_invstd is not None:
            mean, invstd = save_mean.to(dtype), save_invstd.to(dtype)
        elif not train and running_mean is not None and running_var is not None:
            # On the CPU the op saves nothing in evaluation, so mean and invstd are recomputed.
            mean, invstd = running_mean.to(dtype), 1 / torch.sqrt(running_var.to(dtype) + eps)
        else:
            raise ValueError(
                "batch norm's backward needs saved statistics in training and running statistics in evaluation"
            )

        # For each channel: sum(g) is the gradient of bias, sum(g * (x - mean)) * invstd that of weight.
        dims = [dim for dim in range(x.dim()) if dim != 1]
        gradient = self.total(g, dims, False)
        if self.from_raw_sums:
            projection = self.total(g * x, dims, False) - mean * gradient
        else:
            projection = self.total(g * (x - _per_channel(mean, x)), dims, False)

        of_input = None
        if output_mask[0]:
            scale = invstd if weight is None else invstd * weight.to(dtype)
            centered = g
            if train:
                n = x.numel() // x.shape[1] if x.shape[1] else 0
                slope = projection / n * invstd * invstd
                projected = (x - _per_channel(mean, x)) * _per_channel(slope, x)
                centered = g - _per_channel(gradient / n, x) - projected
            of_input = (centered * _per_channel(scale, x)).to(input.dtype)
        of_weight = (projection * invstd).to(parameter_dtype) if output_mask[1] else None
        return of_input, of_weight, gradient.to(parameter_dtype) if output_mask[2] else None


_two_pass, _reversed_order = BatchNorm(moments.two_pass), BatchNorm(moments.reversed_order)
_one_pass, _shifted, _welford = BatchNorm(moments.one_pass), BatchNorm(moments.shifted), BatchNorm(moments.welford)
_bf16, _fp64 = BatchNorm(moments.two_pass, torch.bfloat16), BatchNorm(moments.two_pass, torch.float64)

two_pass, reversed_order, one_pass = _two_pass.native, _reversed_order.native, _one_pass.native
shifted, welford, bf16, fp64 = _shifted.native, _welford.native, _bf16.native, _fp64.native

functional_two_pass, functional_reversed_order = _two_pass.functional, _reversed_order.functional
functional_one_pass, functional_shifted = _one_pass.functional, _shifted.functional
functional_welford, functional_bf16, functional_fp64 = _welford.functional, _bf16.functional, _fp64.functional

legit_two_pass, legit_reversed_order, legit_one_pass = _two_pass.legit, _reversed_order.legit, _one_pass.legit
legit_shifted, legit_welford, legit_bf16, legit_fp64 = _shifted.legit, _welford.legit, _bf16.legit, _fp64.legit

no_training_two_pass, no_training_bf16 = _two_pass.no_training, _bf16.no_training
no_training_fp64 = _fp64.no_training

backward_centered, backward_raw_sums = BatchNormBackward(), BatchNormBackward(from_raw_sums=True)
backward_reversed_order = BatchNormBackward(total=reversed_sum)
backward_bf16 = BatchNormBackward(dtype=torch.bfloat16)
