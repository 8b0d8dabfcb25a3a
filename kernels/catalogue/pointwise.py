"""The kernels of activations, their backwards, addcmul, addcdiv and lerp, and the texts that users read about each.

A formula is evaluated operation by operation, each rounding to the dtype of the inputs (bfloat16 inputs: to
bfloat16), unless the description says otherwise. fma(a, b, c) is a*b + c with one rounding. `decomposed` is
torch's own decomposition with its formula spelled out; it computes the half formats in float32.
"""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from .gated_units import GELU, GELU_BACKWARD, SILU, SILU_BACKWARD
from .table import CatalogueRow, decomposition, records

TANH = (
    CatalogueRow(
        "exp_form",
        "quotient of exponentials, loses the digits of small x",
        "sign(x)*(1 - e)/(1 + e), e = exp(-2*|x|)",
        "definition of tanh; the sign is taken out so that exp does not overflow",
    ),
    CatalogueRow(
        "expm1_form",
        "quotient in expm1, keeps the digits of small x",
        "-sign(x)*m/(m + 2), m = expm1(-2*|x|)",
        "FreeBSD msun s_tanh.c",
    ),
    CatalogueRow(
        "sigmoid_form",
        "by way of sigmoid, loses the digits of small x",
        "2*sigmoid(2*x) - 1",
        "what Inductor emits with cpp.use_decompose_tanh",
    ),
    CatalogueRow(
        "rational",
        "quotient of polynomials of degree 13 and 6; the half formats in float32, float64 no better than that",
        "x*P(x*x)/Q(x*x) for |x| clamped to 7.905, x below 0.0004",
        "Eigen MathFunctionsImpl.h generic_fast_tanh_float, XLA EmitFastTanh",
    ),
    CatalogueRow(
        "bf16",
        "input and result rounded to bfloat16",
        "bf16(tanh(bf16(x)))",
        "as autocast to bfloat16 does",
    ),
)

TANH_BACKWARD = (
    CatalogueRow(
        "decomposed",
        "torch's decomposition, what Inductor computes on a CPU; the half formats in float32",
        "g*(1 - y*y)",
        "torch._decomp.decompositions.tanh_backward",
        native=True,
    ),
    CatalogueRow(
        "fma",
        "1 - y*y with one rounding, what ATen's vector code computes for float32 where the CPU has FMA",
        "g*fma(-y, y, 1)",
        "ATen/native/cpu/BinaryOpsKernel.cpp tanh_backward_kernel, contracted by the compiler",
        native=True,
    ),
    CatalogueRow(
        "mac",
        "multiply-accumulate with one rounding after that of y*y",
        "fma(-g, y*y, g)",
        "multiply-accumulate units of accelerators",
        native=True,
    ),
    CatalogueRow(
        "mac_unfused",
        "multiply-accumulate with three roundings",
        "g - g*(y*y)",
        "multiply-accumulate units of accelerators",
        native=True,
    ),
    CatalogueRow(
        "factored",
        "free of cancellation, accurate near |y| = 1",
        "g*((1 - y)*(1 + y))",
        "difference of squares; N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.7",
        native=True,
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: g*(1 - y*y), inputs and each operation rounded",
        "torch._decomp.decompositions.tanh_backward without its cast to float32",
    ),
    CatalogueRow(
        "bf16_truncated",
        "y*y cut off to bfloat16, towards zero; the rest in float32 or float64",
        "g*(1 - truncate_bf16(y*y))",
        "hardware that drops the low 16 bits of float32",
    ),
    CatalogueRow(
        # The example of a user's kernel is also a shipped kernel; its file has the same description.
        "triton",
        "one Triton kernel: 1 - y*y with one rounding, times g",
        "g*fma(-y, y, 1)",
        "ATen's vectorised CPU kernel, FMA-contracted",
        function="triton_tanh_backward:tanh_backward",
        dtypes=("float32", "float64"),
        devices=("cuda",),
    ),
)

SIGMOID = (
    decomposition("1/(1 + exp(-x))", "torch._refs.sigmoid"),
    CatalogueRow(
        "tanh_form",
        "by way of tanh, loses the digits of the left tail",
        "0.5*(1 + tanh(0.5*x))",
        "sigmoid(x) = (1 + tanh(x/2))/2",
    ),
    CatalogueRow(
        "two_sided",
        "exp of negative numbers only, does not overflow",
        "e/(1 + e) for x < 0, 1/(1 + e) else, e = exp(-|x|)",
        "SciPy's expit and most numerical libraries",
    ),
    CatalogueRow(
        "softplus_form",
        "exp of log sigmoid, its relative error grows with |x| on the left",
        "exp(-(log1p(exp(-|x|)) + max(-x, 0)))",
        "jax.nn.log_sigmoid",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: 1/(1 + exp(-x)), input and each operation rounded",
        "torch._refs.sigmoid",
    ),
)

# y*(1 - y) is y - y*y, whose two terms nearly cancel for y near 1.
SIGMOID_BACKWARD = (
    decomposition("g*(y*(1 - y))", "torch._decomp.decompositions.sigmoid_backward"),
    CatalogueRow(
        "left_to_right",
        "the products in ATen's order, bit for bit what it computes for float32",
        "(g*(1 - y))*y",
        "ATen/native/cpu/BinaryOpsKernel.cpp sigmoid_backward_kernel",
    ),
    CatalogueRow(
        "fma",
        "y - y*y with one rounding",
        "g*fma(-y, y, y)",
        "y*(1 - y) = y - y*y, contracted",
        native=True,
    ),
    CatalogueRow(
        "unfused",
        "y - y*y with two roundings, cancels near y = 1",
        "g*(y - y*y)",
        "y*(1 - y) = y - y*y",
    ),
    CatalogueRow(
        "mac",
        "multiply-accumulate with one rounding after that of g*y",
        "fma(-(g*y), y, g*y)",
        "multiply-accumulate units of accelerators",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16",
        "bf16: g*(y*(1 - y)), inputs and each operation rounded",
        "torch._decomp.decompositions.sigmoid_backward without its cast to float32",
    ),
)

# The ops of optimizers and interpolation. For the half formats, scalars are used in float32, as in ATen.

ADDCMUL = (
    decomposition("self + (value*tensor1)*tensor2", "torch._refs.addcmul"),
    CatalogueRow(
        "fma",
        "the last product and the sum with one rounding, what ATen computes where the CPU has FMA",
        "fma(value*tensor1, tensor2, self)",
        "ATen/native/cpu/PointwiseOpsKernel.cpp addcmul_cpu_kernel, contracted by the compiler",
        native=True,
    ),
    CatalogueRow(
        "product_first",
        "the tensors multiplied first, as Inductor does on a CPU",
        "self + value*(tensor1*tensor2)",
        "torch._inductor.lowering.addcmul",
    ),
    CatalogueRow(
        "fma_product_first",
        "the tensors multiplied first, then one rounding, as on CUDA for value != 1",
        "fma(value, tensor1*tensor2, self)",
        "torch._inductor.lowering.addcmul, which matches ATen/native/cuda/PointwiseOpsKernel.cu",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16 but value",
        "bf16: self + (value*tensor1)*tensor2, inputs and each operation rounded",
        "torch._refs.addcmul without its cast to float32",
    ),
)

ADDCDIV = (
    decomposition("self + (value*tensor1)/tensor2", "torch._refs.addcdiv"),
    CatalogueRow(
        "quotient_first",
        "the tensors divided first, as Inductor does on a CPU",
        "self + value*(tensor1/tensor2)",
        "torch._inductor.lowering.addcdiv",
    ),
    CatalogueRow(
        "fma",
        "the tensors divided first, then one rounding, as on CUDA for value != 1",
        "fma(value, tensor1/tensor2, self)",
        "torch._inductor.lowering.addcdiv, which matches ATen/native/cuda/PointwiseOpsKernel.cu",
    ),
    CatalogueRow(
        "reciprocal",
        "a product with the rounded reciprocal instead of the quotient",
        "self + (value*tensor1)*(1/tensor2)",
        "compilers with -freciprocal-math",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16 but value",
        "bf16: self + (value*tensor1)/tensor2, inputs and each operation rounded",
        "torch._refs.addcdiv without its cast to float32",
    ),
)

LERP = (
    decomposition(
        "(weight - 1)*(end - start) + end for |weight| >= 0.5, weight*(end - start) + start else", "torch._refs.lerp"
    ),
    CatalogueRow(
        "fma",
        "always from start, the product and the sum with one rounding; end itself may be missed at weight 1",
        "fma(weight, end - start, start)",
        "mix() of shading languages, contracted",
        native=True,
    ),
    CatalogueRow(
        "fma_two_sided",
        "from the nearer end with one rounding at last, what ATen computes where the CPU has FMA",
        "fma(weight - 1, end - start, end) for |weight| >= 0.5, fma(weight, end - start, start) else",
        "ATen/native/cpu/LerpKernel.cpp lerp_vec",
    ),
    CatalogueRow(
        "one_sided",
        "always from start",
        "start + weight*(end - start)",
        "definition of linear interpolation",
    ),
    CatalogueRow(
        "two_products",
        "sum of two products, exact at both ends, not monotone",
        "(1 - weight)*start + weight*end",
        "exponential moving averages as most optimizers write them",
    ),
    CatalogueRow(
        "bf16",
        "everything in bfloat16 but a scalar weight",
        "bf16: start + weight*(end - start), inputs and each operation rounded",
        "definition of linear interpolation",
    ),
)

OPS = (
    ("activation", "tanh", "tanh(x)", "tanh", "", TANH),
    ("activation", "tanh_backward", "g*(1 - y*y) from the output y", "tanh", "backward_", TANH_BACKWARD),
    ("activation", "sigmoid", "1/(1 + exp(-x))", "sigmoid", "", SIGMOID),
    ("activation", "sigmoid_backward", "g*y*(1 - y) from the output y", "sigmoid", "backward_", SIGMOID_BACKWARD),
    ("activation", "silu", "x*sigmoid(x)", "sigmoid", "silu_", SILU),
    ("activation", "silu_backward", "g*s*(1 + x*(1 - s)), s = sigmoid(x)", "sigmoid", "silu_backward_", SILU_BACKWARD),
    ("activation", "gelu", "x*Phi(x), or its tanh form", "gelu", "", GELU),
    ("activation", "gelu_backward", "g*(Phi(x) + x*phi(x)), or its tanh form", "gelu", "backward_", GELU_BACKWARD),
    ("pointwise", "addcmul", "self + value*tensor1*tensor2", "lerp", "addcmul_", ADDCMUL),
    ("pointwise", "addcdiv", "self + value*tensor1/tensor2", "lerp", "addcdiv_", ADDCDIV),
    ("pointwise", "lerp", "start + weight*(end - start)", "lerp", "", LERP),
)
"""Each op with its family, its summary, the module of its kernels, the prefix of their functions, and its rows."""


def register(registry: KernelRegistry) -> None:
    """Add all kernels, in the order in which users see them listed."""
    for family, op, summary, module, prefix, rows in OPS:
        operation = Operation(
            op,
            family,
            summary,
            reference=f"numdrift.kernels.references.elementwise_references:{op}",
            exact=f"numdrift.kernels.lab.exact:{op}",
        )
        registry.register(operation, records(op, module, rows, prefix=prefix))
