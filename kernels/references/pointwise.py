"""addcmul, addcdiv and lerp in float64: evaluated with 106 bits and rounded once, so nothing cancels.

Tensors are float64 and broadcast. A number (`value`, a scalar weight) counts as it is given, although kernels
round it to their own precision. Where a part overflows, the plain float64 formula counts.
"""

from __future__ import annotations

import torch

from .double_double import Pair, over, pair, plus, settled, times


def addcmul(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    """base + value*first*second."""
    product = times(times(pair(first), pair(second)), _number(value, base))
    return settled(plus(pair(base), product), base + value * first * second)


def addcdiv(
    base: torch.Tensor, first: torch.Tensor, second: torch.Tensor, *, value: float = 1
) -> torch.Tensor:
    """base + value*first/second."""
    quotient = over(times(pair(first), _number(value, base)), pair(second))
    return settled(plus(pair(base), quotient), base + value * first / second)


def lerp(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """start + weight*(end - start)."""
    factor = pair(weight) if isinstance(weight, torch.Tensor) else _number(weight, start)
    step = times(factor, plus(pair(end), pair(-start)))
    return settled(plus(pair(start), step), start + weight * (end - start))


def _number(value: float, like: torch.Tensor) -> Pair:
    return pair(like.new_full((), value))
