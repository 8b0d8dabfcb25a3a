"""The dtypes in which kernels compute, and the casts, maxima and sums that several kernels use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

HALVES = (torch.bfloat16, torch.float16)

Normalized = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""The results of a normalization: the output, and the two statistics that its backward needs."""

Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
"""The gradients of a normalization's input, weight and bias."""

Sum = Callable[[torch.Tensor, list[int], bool], torch.Tensor]
"""Sums over some dimensions, keeping them if the last argument is true."""


def computing(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which ATen computes inside a kernel: float32 for bfloat16 and float16, else the dtype
    itself."""
    return torch.float32 if dtype in HALVES else dtype


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the dtype in which ATen computes."""
    return tensor.to(computing(tensor.dtype))


def autocast(*tensors: torch.Tensor | None) -> list[torch.Tensor | None]:
    """If autocast is on, cast tensors as it does for a product: all floating-point tensors but those in float64."""
    device = next(tensor.device.type for tensor in tensors if tensor is not None)
    if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
        return list(tensors)
    dtype = torch.get_autocast_dtype(device)
    return [
        tensor
        if tensor is None or not tensor.is_floating_point() or tensor.dtype == torch.float64
        else tensor.to(dtype)
        for tensor in tensors
    ]


def without_autocast(device: str) -> contextlib.AbstractContextManager[object]:
    """Return a context in which operations on this device type compute in the dtype of their arguments."""
    if not torch.amp.is_autocast_available(device):
        return contextlib.nullcontext()
    return torch.autocast(device, enabled=False)


def blocks(x: torch.Tensor, size: int, dim: int) -> list[torch.Tensor]:
    """Return slices of `size` elements along a dimension; the last one may be shorter."""
    if not x.dim():
        return [x]
    length = x.shape[dim]
    # lazy tensors cannot be `split`
    return [x.narrow(dim, start, min(size, length - start)) for start in range(0, length, size)] or [x]


def largest_of(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the maximum along a dimension, and keep this dimension."""
    # lazy mode has no kernel for `amax`
    return x.max(dim, keepdim=True).values


def above_infinity(x: torch.Tensor) -> torch.Tensor:
    """Replace -inf with the least finite number. Subtracted from scores of -inf, a maximum of -inf would give NaN."""
    return x.clamp(min=torch.finfo(x.dtype).min)


def reversed_sum(x: torch.Tensor, dims: list[int], keepdim: bool = False) -> torch.Tensor:
    """Reverse the elements and sum them in ATen's order; return the tensor itself if `dims` is empty."""
    if not dims:
        return x
    return x.flip(dims).sum(dims, keepdim=keepdim)


def plain_sum(x: torch.Tensor, dims: list[int], keepdim: bool = False) -> torch.Tensor:
    """Sum in ATen's order; return the tensor itself if `dims` is empty."""
    if not dims:
        return x
    return x.sum(dims, keepdim=keepdim)


# Evaluation of formulas in bfloat16, and truncation to bfloat16.

_LARGEST = torch.finfo(torch.bfloat16).max
_LEAST = 2.0**-133
"""Smallest subnormal of bfloat16."""


def in_bfloat16(formula: Callable[..., torch.Tensor], *operands: torch.Tensor | float) -> torch.Tensor:
    """Round the tensors to bfloat16, evaluate the formula on them, and cast the result to their common dtype.

    Each torch operation of the formula rounds its result to bfloat16; numbers are used as they are.
    """
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    narrow = [operand.to(torch.bfloat16) if isinstance(operand, torch.Tensor) else operand for operand in operands]
    return formula(*narrow).to(dtype)


def truncated_to_bfloat16(x: torch.Tensor) -> torch.Tensor:
    """Drop the digits that bfloat16 does not have, that is, round towards zero. The dtype of `x` is kept.

    x: float32 or float64. Finite numbers stay finite; nan and infinity stay unchanged.
    """
    size = x.abs()
    near = size.to(torch.bfloat16).to(x.dtype)
    # One step down: r*(1-2**-8) rounds to the predecessor of a normal r; r-2**-133 is the predecessor of a subnormal r.
    below = torch.minimum(near * (1 - 2.0**-8), near - _LEAST).clamp(max=_LARGEST)
    return torch.copysign(torch.where(near > size, below.to(torch.bfloat16).to(x.dtype), near), x)
