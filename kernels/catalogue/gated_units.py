"""The kernels of silu, gelu and their backwards; `pointwise` explains how to read a formula."""

from __future__ import annotations

from .table import CatalogueRow, decomposition

# x*sigmoid(x) cancels nowhere: the kernels differ in the sigmoid, and in where the sum rounds.
SILU = (
    decomposition("x*sigmoid(x)", "torch._decomp.decompositions.silu"),
    CatalogueRow(
        "exp_form",
        "one quotient, ATen's formula; its exp differs from torch.exp by an ULP now and then",
        "x/(1 + exp(-x))",
        "ATen/native/cpu/Activation.cpp silu_kernel",
    ),
    CatalogueRow(
        "tanh_form",
        "by way of tanh, loses the digits of the left tail",
        "h*(1 + tanh(h)), h = 0.5*x",
        "sigmoid(x) = (1 + tanh(x/2))/2",
    ),
    CatalogueRow(
        "fma",
        "by way of tanh, the sum with one rounding",
        "fma(h, tanh(h), h), h = 0.5*x",
        "sigmoid(x) = (1 + tanh(x/2))/2",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: x*sigmoid(x), input and each operation rounded",
        "torch._decomp.decompositions.silu without its cast to float32",
    ),
)

SILU_BACKWARD = (
    decomposition("(g*s)*(1 + x*(1 - s)), s = sigmoid(x)", "torch._decomp.decompositions.silu_backward"),
    CatalogueRow(
        "derivative_first",
        "the gradient multiplied last",
        "g*(s*(1 + x*(1 - s))), s = sigmoid(x)",
        "torch._decomp.decompositions.silu_backward, reordered",
    ),
    CatalogueRow(
        "fma",
        "the inner sum with one rounding, what ATen's vector code computes for float32 where the CPU has FMA",
        "(g*s)*fma(x, 1 - s, 1), s = sigmoid(x)",
        "ATen/native/cpu/Activation.cpp silu_backward_kernel, contracted by the compiler",
    ),
    CatalogueRow(
        "expanded",
        "sum of two products",
        "g*(s + x*s*(1 - s)), s = sigmoid(x)",
        "product rule on x*sigmoid(x)",
    ),
    CatalogueRow(
        "from_output",
        "in terms of the output, cancels on the left",
        "g*(y + s*(1 - y)), y = x*s, s = sigmoid(x)",
        "P. Ramachandran, B. Zoph and Q. V. Le, Searching for Activation Functions, arXiv 1710.05941",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: (g*s)*(1 + x*(1 - s)), inputs and each operation rounded",
        "torch._decomp.decompositions.silu_backward without its cast to float32",
    ),
)

_U = "u = b*(x + 0.044715*(x*x*x)), b = sqrt(2/pi)"

# Each kernel computes both forms of the op, so its formula shows both.
GELU = (
    decomposition(
        f"none: (x*0.5)*(1 + erf(x*sqrt(0.5))); tanh: (0.5*x)*(1 + tanh(u)), {_U}", "torch._refs.nn.functional.gelu"
    ),
    CatalogueRow(
        "erfc",
        "keeps the digits of the left tail",
        f"none: 0.5*x*erfc(-sqrt(0.5)*x); tanh: x/(1 + exp(-2*u)), {_U}",
        "1 + erf(z) = erfc(-z)",
    ),
    CatalogueRow(
        "fma",
        "the sum with one rounding",
        f"fma(h, t, h), h = 0.5*x; t = erf(sqrt(0.5)*x), or tanh(u), {_U}",
        "torch._refs.nn.functional.gelu, distributed and contracted",
    ),
    CatalogueRow(
        "distributed",
        "the sum last, with two roundings",
        f"h + h*t, h = 0.5*x; t = erf(sqrt(0.5)*x), or tanh(u), {_U}",
        "torch._refs.nn.functional.gelu, distributed",
    ),
    CatalogueRow(
        "tanh_form",
        "the tanh form whichever is asked for: another function for approximate='none'",
        f"(0.5*x)*(1 + tanh(u)), {_U}",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415",
    ),
    CatalogueRow(
        "exp_form",
        "the tanh form by way of exp, whichever is asked for",
        f"x/(1 + exp(-2*u)), {_U}",
        "(1 + tanh(u))/2 = sigmoid(2*u)",
    ),
    CatalogueRow(
        "quick",
        "a coarse approximation, whichever form is asked for",
        "x*sigmoid(1.702*x)",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: 0.5*x*(1 + t), t as for fma, input and each operation rounded",
        "torch._refs.nn.functional.gelu without its cast to float32",
    ),
)

GELU_BACKWARD = (
    decomposition(
        "none: g*(cdf + x*pdf), cdf = 0.5*(1 + erf(x*sqrt(0.5))), pdf = exp(x*x*-0.5)/sqrt(2*pi);"
        f" tanh: g*(0.5*(1 + t) + (0.5*x)*(1 - t*t)*b*(1 + 3*0.044715*(x*x))), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward",
    ),
    CatalogueRow(
        "erfc",
        "keeps the digits of both tails",
        f"none: g*(0.5*erfc(-sqrt(0.5)*x) + x*pdf); tanh: g*(s + x*s*sigmoid(-2*u)*2*u'), s = sigmoid(2*u), {_U}",
        "1 + erf(z) = erfc(-z)",
    ),
    CatalogueRow(
        "fma",
        "the sum with one rounding",
        f"g*fma(x, pdf, cdf); tanh: g*fma(x, 0.5*(1 - t*t)*u', 0.5*(1 + t)), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward, contracted",
    ),
    CatalogueRow(
        "distributed",
        "the gradient multiplied into both terms",
        f"g*cdf + (g*x)*pdf; tanh: g*0.5*(1 + t) + (g*x)*(0.5*(1 - t*t)*u'), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward, distributed",
    ),
    CatalogueRow(
        "tanh_form",
        "the derivative of the tanh form whichever is asked for: another function for approximate='none'",
        f"g*(0.5*(1 + t) + x*(0.5*(1 - t*t)*u')), t = tanh(u), {_U}",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: g*(cdf + x*pdf), or the tanh form's, inputs and each operation rounded",
        "torch._decomp.decompositions.gelu_backward without its cast to float32",
    ),
)
