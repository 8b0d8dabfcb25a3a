"""Kernels of the activations and their backwards.

A formula is evaluated operation by operation, each rounding to the dtype of the inputs (bfloat16 inputs: to
bfloat16), unless the description says otherwise. fma(a, b, c) is a*b + c with one rounding. `decomposed` is
torch's own decomposition with its formula spelled out; it computes the half formats in float32.
"""

from __future__ import annotations

from ..registry import Kernel, KernelRegistry, Operation
from .gated_units import GELU, GELU_BACKWARD, SILU, SILU_BACKWARD
from .table import decomposition

_TANH = "numdrift.kernels.implementations.tanh"
_TANH_BACKWARD = "numdrift.kernels.implementations.tanh_backward"
_SIGMOID = "numdrift.kernels.implementations.sigmoid"


def register(registry: KernelRegistry) -> None:
    """Add the activations and their backwards."""
    registry.register(_operation("tanh", "tanh(x)"), TANH)
    registry.register(_operation("tanh_backward", "g*(1 - y*y) from the output y"), TANH_BACKWARD)
    registry.register(_operation("sigmoid", "1/(1 + exp(-x))"), SIGMOID)
    registry.register(_operation("sigmoid_backward", "g*y*(1 - y) from the output y"), SIGMOID_BACKWARD)
    registry.register(_operation("silu", "x*sigmoid(x)"), SILU)
    registry.register(_operation("silu_backward", "g*s*(1 + x*(1 - s)), s = sigmoid(x)"), SILU_BACKWARD)
    registry.register(_operation("gelu", "x*Phi(x), or its tanh form"), GELU)
    registry.register(_operation("gelu_backward", "g*(Phi(x) + x*phi(x)), or its tanh form"), GELU_BACKWARD)


def _operation(name: str, summary: str) -> Operation:
    return Operation(
        name,
        family="activation",
        summary=summary,
        reference=f"numdrift.kernels.references.elementwise_references:{name}",
        exact=f"numdrift.kernels.lab.exact_functions:{name}",
    )


TANH = (
    Kernel(
        "tanh",
        "exp_form",
        "quotient of exponentials, loses the digits of small x",
        "sign(x)*(1 - e)/(1 + e), e = exp(-2*|x|)",
        f"{_TANH}:exp_form",
        "definition of tanh; the sign is taken out so that exp does not overflow",
    ),
    Kernel(
        "tanh",
        "expm1_form",
        "quotient in expm1, keeps the digits of small x",
        "-sign(x)*m/(m + 2), m = expm1(-2*|x|)",
        f"{_TANH}:expm1_form",
        "FreeBSD msun s_tanh.c",
    ),
    Kernel(
        "tanh",
        "sigmoid_form",
        "by way of sigmoid, loses the digits of small x",
        "2*sigmoid(2*x) - 1",
        f"{_TANH}:sigmoid_form",
        "what Inductor emits with cpp.use_decompose_tanh",
    ),
    Kernel(
        "tanh",
        "rational",
        "quotient of polynomials of degree 13 and 6; the half formats in float32, float64 no better than that",
        "x*P(x*x)/Q(x*x) for |x| clamped to 7.905, x below 0.0004",
        f"{_TANH}:rational",
        "Eigen MathFunctionsImpl.h generic_fast_tanh_float, XLA EmitFastTanh",
    ),
    Kernel(
        "tanh",
        "bf16",
        "input and result rounded to bfloat16",
        "bf16(tanh(bf16(x)))",
        f"{_TANH}:bf16",
        "as autocast to bfloat16 does",
    ),
)

TANH_BACKWARD = (
    Kernel(
        "tanh_backward",
        "decomposed",
        "torch's decomposition, what Inductor computes on a CPU; the half formats in float32",
        "g*(1 - y*y)",
        f"{_TANH_BACKWARD}:decomposed",
        "torch._decomp.decompositions.tanh_backward",
        native=True,
    ),
    Kernel(
        "tanh_backward",
        "fma",
        "1 - y*y with one rounding, what ATen's vector code computes for float32 where the CPU has FMA",
        "g*fma(-y, y, 1)",
        f"{_TANH_BACKWARD}:fma",
        "ATen/native/cpu/BinaryOpsKernel.cpp tanh_backward_kernel, contracted by the compiler",
        native=True,
    ),
    Kernel(
        "tanh_backward",
        "mac",
        "multiply-accumulate with one rounding after that of y*y",
        "fma(-g, y*y, g)",
        f"{_TANH_BACKWARD}:mac",
        "multiply-accumulate units of accelerators",
        native=True,
    ),
    Kernel(
        "tanh_backward",
        "mac_unfused",
        "multiply-accumulate with three roundings",
        "g - g*(y*y)",
        f"{_TANH_BACKWARD}:mac_unfused",
        "multiply-accumulate units of accelerators",
        native=True,
    ),
    Kernel(
        "tanh_backward",
        "factored",
        "free of cancellation, accurate near |y| = 1",
        "g*((1 - y)*(1 + y))",
        f"{_TANH_BACKWARD}:factored",
        "difference of squares; N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.7",
        native=True,
    ),
    Kernel(
        "tanh_backward",
        "bf16",
        "everything in bfloat16",
        "bf16: g*(1 - y*y), inputs and each operation rounded",
        f"{_TANH_BACKWARD}:bf16",
        "torch._decomp.decompositions.tanh_backward without its cast to float32",
    ),
    Kernel(
        "tanh_backward",
        "bf16_truncated",
        "y*y cut off to bfloat16, towards zero; the rest in float32 or float64",
        "g*(1 - truncate_bf16(y*y))",
        f"{_TANH_BACKWARD}:bf16_truncated",
        "hardware that drops the low 16 bits of float32",
    ),
    Kernel(
        "tanh_backward",
        "triton",
        "one Triton kernel: 1 - y*y with one rounding, times g",
        "g*fma(-y, y, 1)",
        "numdrift.kernels.implementations.triton_tanh_backward:tanh_backward",
        "ATen's vectorised CPU kernel, FMA-contracted",
        dtypes=("float32", "float64"),
        devices=("cuda",),
    ),
)

SIGMOID = (
    decomposition("sigmoid", "1/(1 + exp(-x))", "torch._refs.sigmoid"),
    Kernel(
        "sigmoid",
        "tanh_form",
        "by way of tanh, loses the digits of the left tail",
        "0.5*(1 + tanh(0.5*x))",
        f"{_SIGMOID}:tanh_form",
        "sigmoid(x) = (1 + tanh(x/2))/2",
    ),
    Kernel(
        "sigmoid",
        "two_sided",
        "exp of negative numbers only, does not overflow",
        "e/(1 + e) for x < 0, 1/(1 + e) else, e = exp(-|x|)",
        f"{_SIGMOID}:two_sided",
        "SciPy's expit and most numerical libraries",
    ),
    Kernel(
        "sigmoid",
        "softplus_form",
        "exp of log sigmoid, its relative error grows with |x| on the left",
        "exp(-(log1p(exp(-|x|)) + max(-x, 0)))",
        f"{_SIGMOID}:softplus_form",
        "jax.nn.log_sigmoid",
    ),
    Kernel(
        "sigmoid",
        "bf16",
        "everything in bfloat16",
        "bf16: 1/(1 + exp(-x)), input and each operation rounded",
        f"{_SIGMOID}:bf16",
        "torch._refs.sigmoid",
    ),
)

SIGMOID_BACKWARD = (
    decomposition("sigmoid_backward", "g*(y*(1 - y))", "torch._decomp.decompositions.sigmoid_backward"),
    Kernel(
        "sigmoid_backward",
        "left_to_right",
        "the products in ATen's order, bit for bit what it computes for float32",
        "(g*(1 - y))*y",
        f"{_SIGMOID}:backward_left_to_right",
        "ATen/native/cpu/BinaryOpsKernel.cpp sigmoid_backward_kernel",
    ),
    Kernel(
        "sigmoid_backward",
        "fma",
        "y - y*y with one rounding",
        "g*fma(-y, y, y)",
        f"{_SIGMOID}:backward_fma",
        "y*(1 - y) = y - y*y, contracted",
        native=True,
    ),
    Kernel(
        "sigmoid_backward",
        "unfused",
        "y - y*y with two roundings, cancels near y = 1",
        "g*(y - y*y)",
        f"{_SIGMOID}:backward_unfused",
        "y*(1 - y) = y - y*y",
    ),
    Kernel(
        "sigmoid_backward",
        "mac",
        "multiply-accumulate with one rounding after that of g*y",
        "fma(-(g*y), y, g*y)",
        f"{_SIGMOID}:backward_mac",
        "multiply-accumulate units of accelerators",
    ),
    Kernel(
        "sigmoid_backward",
        "bf16",
        "everything in bfloat16",
        "bf16: g*(y*(1 - y)), inputs and each operation rounded",
        f"{_SIGMOID}:backward_bf16",
        "torch._decomp.decompositions.sigmoid_backward without its cast to float32",
    ),
)
