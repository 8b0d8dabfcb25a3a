"""Kernels of sigmoid, of silu, which is x*sigmoid(x), and of their backwards.

Each torch operation rounds to the dtype of its inputs. The backward of sigmoid starts from its output y, that of silu
from its input x.
"""

from __future__ import annotations

import torch

from ..fused import fma
from ..native.library import elementwise
from .precision import in_bfloat16


def tanh_form(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * (1 + torch.tanh(0.5 * x))


def two_sided(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-x.abs())
    return torch.where(x < 0, e, torch.ones_like(e)) / (1 + e)


def softplus_form(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-(torch.log1p(torch.exp(-x.abs())) + (-x).clamp(min=0)))


def bf16(x: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda x: 1 / (1 + torch.exp(-x)), x)


def backward_left_to_right(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (1 - y) * y


def backward_unfused(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return grad * (y - y * y)


def backward_fma(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("sigmoid_backward_fma", (grad, y))
    return grad * fma(-y, y, y) if in_c is None else in_c


def backward_mac(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    product = grad * y
    return fma(-product, y, product)


def backward_bf16(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda g, y: g * (y * (1 - y)), grad, y)


# silu. The tanh forms use sigmoid(x) = (1 + tanh(x/2))/2.


def silu_exp_form(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def silu_tanh_form(x: torch.Tensor) -> torch.Tensor:
    half = 0.5 * x
    return half * (1 + torch.tanh(half))


def silu_fma(x: torch.Tensor) -> torch.Tensor:
    half = 0.5 * x
    return fma(half, torch.tanh(half), half)


def silu_bf16(x: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda x: x * torch.sigmoid(x), x)


def silu_backward_derivative_first(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    return grad * (s * (1 + x * (1 - s)))


def silu_backward_expanded(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    return grad * (s + x * s * (1 - s))


def silu_backward_fma(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    return grad * s * fma(x, 1 - s, 1.0)


def silu_backward_from_output(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    s = torch.sigmoid(x)
    y = x * s  # the op receives its input, not this output, which is therefore recomputed
    return grad * (y + s * (1 - y))


def silu_backward_bf16(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    def formula(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))

    return in_bfloat16(formula, grad, x)
