"""Several ways to compute the mean and biased variance of each row of a matrix [groups, n], both as [groups, 1]."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .precision import blocks

BLOCK = 64
"""The number of elements whose moments the blockwise form computes together."""

Moments = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def two_pass(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute mean = sum(x) / n, variance = sum((x - mean)^2) / n."""
    n = x.shape[1]
    mean = x.sum(1, keepdim=True) / n
    centered = x - mean
    return mean, (centered * centered).sum(1, keepdim=True) / n


def reversed_order(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the two-pass form over the elements from last to first."""
    return two_pass(x.flip(1))


def one_pass(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute variance = E[x^2] - E[x]^2, which cancels if the mean is large relative to the deviation, and can be
    negative."""
    n = x.shape[1]
    mean = x.sum(1, keepdim=True) / n
    return mean, (x * x).sum(1, keepdim=True) / n - mean * mean


def shifted(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Subtract the first element of each row from the row, and compute the one-pass form of the result."""
    if x.shape[1] == 0:
        return two_pass(x)
    first = x[:, :1]
    mean, variance = one_pass(x - first)
    return first + mean, variance


def welford(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute the two-pass moments of blocks of `BLOCK` elements, merging each into those of the earlier blocks.

    Source: Chan, Golub, LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances,
    1979, equation 2.1 (Welford's update is the case of blocks of one element).
    """
    first, *rest = blocks(x, BLOCK, 1)
    count = first.shape[1]
    mean, variance = two_pass(first)
    square = variance * count
    for block in rest:
        added = block.shape[1]
        block_mean, block_variance = two_pass(block)
        delta = block_mean - mean
        total = count + added
        mean = mean + delta * (added / total)
        square = square + block_variance * added + delta * delta * (count * added / total)
        count = total
    return mean, square / count if count else variance
