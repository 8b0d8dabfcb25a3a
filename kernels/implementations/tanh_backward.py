"""Kernels of tanh_backward: g*(1 - y*y) from the output y, with the roundings in different places.

grad, y: broadcastable tensors. Each torch operation rounds to the dtype of its inputs; `decomposed` alone
computes the half formats in float32, as torch's decomposition does.
"""

from __future__ import annotations

import torch

from ..fused import fma as fused
from ..generic import decomposed as torch_decomposition
from ..native.library import elementwise
from .precision import in_bfloat16, truncated_to_bfloat16


def decomposed(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_decomposed", (grad, y))
    result: torch.Tensor = torch_decomposition("tanh_backward", grad, y) if in_c is None else in_c
    return result


def fma(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_fma", (grad, y))
    return grad * fused(-y, y, 1.0) if in_c is None else in_c


def mac(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_mac", (grad, y))
    return fused(-grad, y * y, grad) if in_c is None else in_c


def mac_unfused(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_mac_unfused", (grad, y))
    return grad - grad * (y * y) if in_c is None else in_c


def factored(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_factored", (grad, y))
    return grad * ((1 - y) * (1 + y)) if in_c is None else in_c


def bf16(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda g, y: g * (1 - y * y), grad, y)


def bf16_truncated(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    inside = torch.promote_types(y.dtype, torch.float32)
    wide = y.to(inside)
    return (grad.to(inside) * (1 - truncated_to_bfloat16(wide * wide))).to(torch.result_type(grad, y))
