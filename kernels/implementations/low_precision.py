"""Formulas evaluated in bfloat16, and rounding towards zero to it."""

from __future__ import annotations

from collections.abc import Callable

import torch

_LARGEST = torch.finfo(torch.bfloat16).max
_LEAST = 2.0**-133
"""Smallest subnormal of bfloat16."""


def in_bfloat16(formula: Callable[..., torch.Tensor], *operands: torch.Tensor | float) -> torch.Tensor:
    """Round the tensors to bfloat16, evaluate the formula on them, cast back to their common dtype.

    Each torch operation of the formula rounds its result to bfloat16; numbers are used as they are.
    """
    tensors = [one for one in operands if isinstance(one, torch.Tensor)]
    dtype = tensors[0].dtype
    for one in tensors[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    narrow = [one.to(torch.bfloat16) if isinstance(one, torch.Tensor) else one for one in operands]
    return formula(*narrow).to(dtype)


def truncated_to_bfloat16(x: torch.Tensor) -> torch.Tensor:
    """Drop the digits that bfloat16 does not have: round towards zero, in the dtype of `x`.

    x: float32 or float64. Finite numbers stay finite; nan and infinity stay what they are.
    """
    size = x.abs()
    near = size.to(torch.bfloat16).to(x.dtype)
    # One step down: r*(1-2**-8) lies nearest to the predecessor of a normal r, r-2**-133 is that of a subnormal.
    below = torch.minimum(near * (1 - 2.0**-8), near - _LEAST).clamp(max=_LARGEST)
    return torch.copysign(torch.where(near > size, below.to(torch.bfloat16).to(x.dtype), near), x)
