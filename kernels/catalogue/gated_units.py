"""Kernels of silu, gelu and their backwards; see `activations` for how to read a formula."""

from __future__ import annotations

from ..registry import Kernel
from .table import decomposition

_SILU = "numdrift.kernels.implementations.silu"
_GELU = "numdrift.kernels.implementations.gelu"
_GELU_BACKWARD = "numdrift.kernels.implementations.gelu_backward"

SILU = (
    decomposition("silu", "x*sigmoid(x)", "torch._decomp.decompositions.silu"),
    Kernel(
        "silu",
        "exp_form",
        "one quotient, ATen's formula; its exp differs from torch.exp by an ULP now and then",
        "x/(1 + exp(-x))",
        f"{_SILU}:exp_form",
        "ATen/native/cpu/Activation.cpp silu_kernel",
    ),
    Kernel(
        "silu",
        "tanh_form",
        "by way of tanh, loses the digits of the left tail",
        "h*(1 + tanh(h)), h = 0.5*x",
        f"{_SILU}:tanh_form",
        "sigmoid(x) = (1 + tanh(x/2))/2",
    ),
    Kernel(
        "silu",
        "fma",
        "by way of tanh, the sum with one rounding",
        "fma(h, tanh(h), h), h = 0.5*x",
        f"{_SILU}:fma",
        "sigmoid(x) = (1 + tanh(x/2))/2",
    ),
    Kernel(
        "silu",
        "bf16",
        "everything in bfloat16",
        "bf16: x*sigmoid(x), input and each operation rounded",
        f"{_SILU}:bf16",
        "torch._decomp.decompositions.silu without its cast to float32",
    ),
)

SILU_BACKWARD = (
    decomposition(
        "silu_backward",
        "(g*s)*(1 + x*(1 - s)), s = sigmoid(x)",
        "torch._decomp.decompositions.silu_backward",
    ),
    Kernel(
        "silu_backward",
        "derivative_first",
        "the gradient multiplied last",
        "g*(s*(1 + x*(1 - s))), s = sigmoid(x)",
        f"{_SILU}:backward_derivative_first",
        "torch._decomp.decompositions.silu_backward, reordered",
    ),
    Kernel(
        "silu_backward",
        "fma",
        "the inner sum with one rounding, what ATen's vector code computes for float32 where the CPU has FMA",
        "(g*s)*fma(x, 1 - s, 1), s = sigmoid(x)",
        f"{_SILU}:backward_fma",
        "ATen/native/cpu/Activation.cpp silu_backward_kernel, contracted by the compiler",
    ),
    Kernel(
        "silu_backward",
        "expanded",
        "sum of two products",
        "g*(s + x*s*(1 - s)), s = sigmoid(x)",
        f"{_SILU}:backward_expanded",
        "product rule on x*sigmoid(x)",
    ),
    Kernel(
        "silu_backward",
        "from_output",
        "in terms of the output, cancels on the left",
        "g*(y + s*(1 - y)), y = x*s, s = sigmoid(x)",
        f"{_SILU}:backward_from_output",
        "P. Ramachandran, B. Zoph and Q. V. Le, Searching for Activation Functions, arXiv 1710.05941",
    ),
    Kernel(
        "silu_backward",
        "bf16",
        "everything in bfloat16",
        "bf16: (g*s)*(1 + x*(1 - s)), inputs and each operation rounded",
        f"{_SILU}:backward_bf16",
        "torch._decomp.decompositions.silu_backward without its cast to float32",
    ),
)

_U = "u = b*(x + 0.044715*(x*x*x)), b = sqrt(2/pi)"

GELU = (
    decomposition(
        "gelu",
        f"none: (x*0.5)*(1 + erf(x*sqrt(0.5))); tanh: (0.5*x)*(1 + tanh(u)), {_U}",
        "torch._refs.nn.functional.gelu",
    ),
    Kernel(
        "gelu",
        "erfc",
        "keeps the digits of the left tail",
        f"none: 0.5*x*erfc(-sqrt(0.5)*x); tanh: x/(1 + exp(-2*u)), {_U}",
        f"{_GELU}:erfc",
        "1 + erf(z) = erfc(-z)",
    ),
    Kernel(
        "gelu",
        "fma",
        "the sum with one rounding",
        f"fma(h, t, h), h = 0.5*x; t = erf(sqrt(0.5)*x), or tanh(u), {_U}",
        f"{_GELU}:fma",
        "torch._refs.nn.functional.gelu, distributed and contracted",
    ),
    Kernel(
        "gelu",
        "distributed",
        "the sum last, with two roundings",
        f"h + h*t, h = 0.5*x; t = erf(sqrt(0.5)*x), or tanh(u), {_U}",
        f"{_GELU}:distributed",
        "torch._refs.nn.functional.gelu, distributed",
    ),
    Kernel(
        "gelu",
        "tanh_form",
        "the tanh form whichever is asked for: another function for approximate='none'",
        f"(0.5*x)*(1 + tanh(u)), {_U}",
        f"{_GELU}:tanh_form",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415",
    ),
    Kernel(
        "gelu",
        "exp_form",
        "the tanh form by way of exp, whichever is asked for",
        f"x/(1 + exp(-2*u)), {_U}",
        f"{_GELU}:exp_form",
        "(1 + tanh(u))/2 = sigmoid(2*u)",
    ),
    Kernel(
        "gelu",
        "quick",
        "a coarse approximation, whichever form is asked for",
        "x*sigmoid(1.702*x)",
        f"{_GELU}:quick",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415",
    ),
    Kernel(
        "gelu",
        "bf16",
        "everything in bfloat16",
        "bf16: 0.5*x*(1 + t), t as for fma, input and each operation rounded",
        f"{_GELU}:bf16",
        "torch._refs.nn.functional.gelu without its cast to float32",
    ),
)

GELU_BACKWARD = (
    decomposition(
        "gelu_backward",
        "none: g*(cdf + x*pdf), cdf = 0.5*(1 + erf(x*sqrt(0.5))), pdf = exp(x*x*-0.5)/sqrt(2*pi);"
        f" tanh: g*(0.5*(1 + t) + (0.5*x)*(1 - t*t)*b*(1 + 3*0.044715*(x*x))), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward",
    ),
    Kernel(
        "gelu_backward",
        "erfc",
        "keeps the digits of both tails",
        f"none: g*(0.5*erfc(-sqrt(0.5)*x) + x*pdf); tanh: g*(s + x*s*sigmoid(-2*u)*2*u'), s = sigmoid(2*u), {_U}",
        f"{_GELU_BACKWARD}:erfc",
        "1 + erf(z) = erfc(-z)",
    ),
    Kernel(
        "gelu_backward",
        "fma",
        "the sum with one rounding",
        f"g*fma(x, pdf, cdf); tanh: g*fma(x, 0.5*(1 - t*t)*u', 0.5*(1 + t)), t = tanh(u), {_U}",
        f"{_GELU_BACKWARD}:fma",
        "torch._decomp.decompositions.gelu_backward, contracted",
    ),
    Kernel(
        "gelu_backward",
        "distributed",
        "the gradient multiplied into both terms",
        f"g*cdf + (g*x)*pdf; tanh: g*0.5*(1 + t) + (g*x)*(0.5*(1 - t*t)*u'), t = tanh(u), {_U}",
        f"{_GELU_BACKWARD}:distributed",
        "torch._decomp.decompositions.gelu_backward, distributed",
    ),
    Kernel(
        "gelu_backward",
        "tanh_form",
        "the derivative of the tanh form whichever is asked for: another function for approximate='none'",
        f"g*(0.5*(1 + t) + x*(0.5*(1 - t*t)*u')), t = tanh(u), {_U}",
        f"{_GELU_BACKWARD}:tanh_form",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415",
    ),
    Kernel(
        "gelu_backward",
        "bf16",
        "everything in bfloat16",
        "bf16: g*(cdf + x*pdf), or the tanh form's, inputs and each operation rounded",
        f"{_GELU_BACKWARD}:bf16",
        "torch._decomp.decompositions.gelu_backward without its cast to float32",
    ),
)
