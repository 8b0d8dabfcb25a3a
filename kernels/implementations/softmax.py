"""Kernels of `_softmax`, `_log_softmax` and `_safe_softmax`.

A form gives a shift m and a sum s of exp(x - m); then softmax is exp(x - m) / s and log_softmax (x - m) -
log(s). bfloat16 and float16 inputs are computed in float32 and rounded once, as in ATen; the `bf16` kernels
round each operation to bfloat16 instead."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .precision import above_infinity, blocks, computing, largest_of, reversed_sum

BLOCK = 64
"""Elements that the online form looks at together."""

Form = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def without_max(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """m = 0."""
    total = torch.exp(x).sum(dim, keepdim=True)
    return torch.zeros_like(total), total


def with_max(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """m = max(x)."""
    largest = largest_of(x, dim)
    return largest, torch.exp(x - largest).sum(dim, keepdim=True)


def reversed_order(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """m = max(x), the sum over the elements from last to first."""
    largest = largest_of(x, dim)
    return largest, reversed_sum(torch.exp(x - largest), [dim], keepdim=True)


def online(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass over blocks of `BLOCK`: m is the maximum so far, and s is rescaled whenever it grows."""
    first, *rest = blocks(x, BLOCK, dim)
    largest = above_infinity(largest_of(first, dim))
    total = torch.exp(first - largest).sum(dim, keepdim=True)
    for block in rest:
        larger = torch.maximum(largest, largest_of(block, dim))
        total = total * torch.exp(largest - larger) + torch.exp(block - larger).sum(dim, keepdim=True)
        largest = larger
    return largest, total


def softmax_without_max(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _softmax(without_max, self, dim, half_to_float)


def softmax_online(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _softmax(online, self, dim, half_to_float)


def softmax_reversed(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _softmax(reversed_order, self, dim, half_to_float)


def softmax_bf16(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _softmax(with_max, self, dim, half_to_float, torch.bfloat16)


def log_softmax_without_max(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _log_softmax(without_max, self, dim, half_to_float)


def log_softmax_online(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _log_softmax(online, self, dim, half_to_float)


def log_softmax_reversed(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _log_softmax(reversed_order, self, dim, half_to_float)


def log_softmax_bf16(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    return _log_softmax(with_max, self, dim, half_to_float, torch.bfloat16)


def log_softmax_of_softmax(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    if self.numel() == 0:
        return torch.empty_like(self, dtype=_given(self, half_to_float))
    x = self.to(computing(self.dtype))
    shift, total = with_max(x, dim)
    return torch.log(torch.exp(x - shift) / total).to(_given(self, half_to_float))


def safe_softmax_without_max(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _safe_softmax(without_max, self, dim, dtype)


def safe_softmax_online(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _safe_softmax(online, self, dim, dtype)


def safe_softmax_reversed(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _safe_softmax(reversed_order, self, dim, dtype)


def safe_softmax_bf16(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return _safe_softmax(with_max, self, dim, dtype, torch.bfloat16)


def _softmax(
    form: Form, x: torch.Tensor, dim: int, half_to_float: bool, dtype: torch.dtype | None = None
) -> torch.Tensor:
    given = _given(x, half_to_float)
    if x.numel() == 0:
        return torch.empty_like(x, dtype=given)
    x = x.to(dtype or computing(x.dtype))
    shift, total = form(x, dim)
    return (torch.exp(x - shift) / total).to(given)


def _log_softmax(
    form: Form, x: torch.Tensor, dim: int, half_to_float: bool, dtype: torch.dtype | None = None
) -> torch.Tensor:
    given = _given(x, half_to_float)
    if x.numel() == 0:
        return torch.empty_like(x, dtype=given)
    x = x.to(dtype or computing(x.dtype))
    shift, total = form(x, dim)
    return ((x - shift) - torch.log(total)).to(given)


def _safe_softmax(
    form: Form, x: torch.Tensor, dim: int, given: torch.dtype | None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    x = x.to(given or x.dtype)
    if x.numel() == 0:
        return torch.empty_like(x)
    nothing = (x == -torch.inf).all(dim, keepdim=True)
    return torch.where(nothing, 0.0, _softmax(form, x, dim, False, dtype))


def _given(x: torch.Tensor, half_to_float: bool) -> torch.dtype:
    return torch.float32 if half_to_float else x.dtype
