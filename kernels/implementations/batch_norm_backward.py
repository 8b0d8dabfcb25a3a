"""Kernels of `native_batch_norm_backward`.

With xhat = (x - mean) * invstd over n elements of a channel, the gradient of the input in training is (g -
mean(g) - xhat * mean(g * xhat)) * invstd * weight; in evaluation the statistics are constants and it is g *
(invstd * weight). bfloat16 and float16 are computed in float32 and rounded once, as in ATen; `bf16` rounds
each operation to bfloat16 instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .precision import computing, plain_sum, reversed_sum, statistics_dtype

Tensor = torch.Tensor
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
Sum = Callable[[Tensor, list[int], bool], Tensor]


@dataclass(frozen=True, slots=True)
class Sums:
    """Per channel: sum(g), sum(g * (x - mean)) and the number n of elements."""

    gradient: Tensor
    projection: Tensor
    n: int


@dataclass(frozen=True, slots=True)
class BatchNormBackward:
    """The three gradients, with one order of summation.

    `from_raw_sums` takes sum(g * (x - mean)) as sum(g * x) - mean * sum(g), which needs no second pass and
    cancels when the mean is large. `dtype` is the one in which each operation rounds; None is the one that
    ATen uses."""

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
        kept = statistics_dtype(input, weight, running_mean, running_var, save_mean)
        g, x = grad_out.to(dtype), input.to(dtype)
        mean, invstd = _statistics(running_mean, running_var, save_mean, save_invstd, train, eps, dtype)
        sums = self._sums(g, x, mean)
        of_input = None
        if output_mask[0]:
            scale = invstd if weight is None else invstd * weight.to(dtype)
            centered = _centered(g, x, mean, invstd, sums) if train else g
            of_input = (centered * _per_channel(scale, x)).to(input.dtype)
        of_weight = (sums.projection * invstd).to(kept) if output_mask[1] else None
        return of_input, of_weight, sums.gradient.to(kept) if output_mask[2] else None

    def _sums(self, g: Tensor, x: Tensor, mean: Tensor) -> Sums:
        dims = [dim for dim in range(x.dim()) if dim != 1]
        n = x.numel() // x.shape[1] if x.shape[1] else 0
        gradient = self.total(g, dims, False)
        if self.from_raw_sums:
            return Sums(gradient, self.total(g * x, dims, False) - mean * gradient, n)
        return Sums(gradient, self.total(g * (x - _per_channel(mean, x)), dims, False), n)


def _statistics(
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    if train and save_mean is not None and save_invstd is not None:
        return save_mean.to(dtype), save_invstd.to(dtype)
    if not train and running_mean is not None and running_var is not None:
        return running_mean.to(dtype), 1 / torch.sqrt(running_var.to(dtype) + eps)
    raise ValueError("batch norm's backward needs saved statistics in training, running ones in evaluation")


def _centered(g: Tensor, x: Tensor, mean: Tensor, invstd: Tensor, sums: Sums) -> Tensor:
    """g - mean(g) - xhat * mean(g * xhat)."""
    slope = sums.projection / sums.n * invstd * invstd
    projected = (x - _per_channel(mean, x)) * _per_channel(slope, x)
    return g - _per_channel(sums.gradient / sums.n, x) - projected


def _per_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.reshape(1, -1, *(1 for _ in range(x.dim() - 2)))


centered = BatchNormBackward()
raw_sums = BatchNormBackward(from_raw_sums=True)
reversed_order = BatchNormBackward(total=reversed_sum)
bf16 = BatchNormBackward(dtype=torch.bfloat16)
