"""Kernels of tanh and tanh_backward: formulas that accelerators and compilers use.

Each torch operation rounds to the dtype of its inputs. Three kernels compute the half formats in float32 instead:
`rational`, `backward_bf16_truncated`, and `backward_decomposed`, as torch's decomposition does. Formulas in exp(-2|x|)
take the sign from x, so that large arguments do not overflow. The kernels of the backward compute g*(1 - y*y) from the
output y; they differ in where they round.
"""

from __future__ import annotations

import torch

from ..fused import fma as fused
from ..generic import decomposed as torch_decomposition
from ..native.library import elementwise
from .precision import in_bfloat16, truncated_to_bfloat16

# Eigen's coefficients, highest power of x*x first.
_NUMERATOR = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
    1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_DENOMINATOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
_ONE_FROM = 7.90531110763549805
"""The argument at which the rational function reaches 1 in float32."""
_STRAIGHT_BELOW = 0.0004
"""The bound below which tanh(x) is x in float32."""


def exp_form(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(-2 * x.abs())
    return torch.copysign((1 - e) / (1 + e), x)


def expm1_form(x: torch.Tensor) -> torch.Tensor:
    m = torch.expm1(-2 * x.abs())
    return torch.copysign(-m / (m + 2), x)


def sigmoid_form(x: torch.Tensor) -> torch.Tensor:
    return 2 * torch.sigmoid(2 * x) - 1


def rational(x: torch.Tensor) -> torch.Tensor:
    """Compute Eigen's quotient of polynomials of degree 13 and 6, as in XLA; the half formats are computed in
    float32."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    inside = wide.clamp(-_ONE_FROM, _ONE_FROM)
    square = inside * inside
    polynomials = []
    for first, second, *others in (_NUMERATOR, _DENOMINATOR):
        total = square * first + second
        for coefficient in others:  # Horner's scheme: the product and the sum round separately
            total = total * square + coefficient
        polynomials.append(total)
    quotient = inside * polynomials[0] / polynomials[1]
    return torch.where(wide.abs() < _STRAIGHT_BELOW, wide, quotient).to(x.dtype)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(torch.tanh, x)


# The backward; grad and y broadcast. Where C code is available, it computes the same bits as the torch formula.


def backward_decomposed(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_decomposed", (grad, y))
    result: torch.Tensor = torch_decomposition("tanh_backward", grad, y) if in_c is None else in_c
    return result


def backward_fma(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_fma", (grad, y))
    return grad * fused(-y, y, 1.0) if in_c is None else in_c


def backward_mac(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_mac", (grad, y))
    return fused(-grad, y * y, grad) if in_c is None else in_c


def backward_mac_unfused(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_mac_unfused", (grad, y))
    return grad - grad * (y * y) if in_c is None else in_c


def backward_factored(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    in_c = elementwise("tanh_backward_factored", (grad, y))
    return grad * ((1 - y) * (1 + y)) if in_c is None else in_c


def backward_bf16(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return in_bfloat16(lambda g, y: g * (1 - y * y), grad, y)


def backward_bf16_truncated(grad: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    inside = torch.promote_types(y.dtype, torch.float32)
    wide = y.to(inside)
    return (grad.to(inside) * (1 - truncated_to_bfloat16(wide * wide))).to(torch.result_type(grad, y))
