"""The kernels of activations, their backwards, addcmul, addcdiv and lerp, with the texts that users read about them.

A formula is evaluated operation by operation, and each operation rounds to the dtype of the inputs (even to
bfloat16), unless the description says otherwise. fma(a, b, c) is a*b + c with one rounding. `decomposed` is
torch's own decomposition with its formula spelled out; it computes the half formats in float32.
"""

from __future__ import annotations

from ..registry import Operation
from .table import OpKernels, Row, decomposition

# fmt: off

TANH = (
    Row("exp_form", "quotient of exponentials; inaccurate for small x",
        "sign(x)*(1 - e)/(1 + e), e = exp(-2*|x|)",
        "definition of tanh; the sign is taken out so that exp does not overflow"),
    Row("expm1_form", "quotient with expm1; accurate for small x",
        "-sign(x)*m/(m + 2), m = expm1(-2*|x|)", "FreeBSD msun s_tanh.c"),
    Row("sigmoid_form", "via sigmoid; inaccurate for small x",
        "2*sigmoid(2*x) - 1", "what Inductor emits with cpp.use_decompose_tanh"),
    Row("rational",
        "quotient of polynomials of degree 13 and 6; half formats in float32; float64 as inaccurate as float32",
        "x if |x| < 0.0004, else c*P(c*c)/Q(c*c), c = x clamped to +-7.905",
        "Eigen MathFunctionsImpl.h generic_fast_tanh_float, XLA EmitFastTanh"),
    Row("bf16", "input and result rounded to bfloat16",
        "bf16(tanh(bf16(x)))", "as autocast to bfloat16 does"),
)

TANH_BACKWARD = (
    Row("decomposed", "torch's decomposition, what Inductor computes on a CPU; the half formats in float32",
        "g*(1 - y*y)", "torch._decomp.decompositions.tanh_backward", native=True),
    Row("fma", "1 - y*y with one rounding, what ATen's vector code computes for float32 where the CPU has FMA",
        "g*fma(-y, y, 1)", "ATen/native/cpu/BinaryOpsKernel.cpp tanh_backward_kernel, contracted by the compiler",
        native=True),
    Row("mac", "multiply-accumulate with one rounding after that of y*y",
        "fma(-g, y*y, g)", "multiply-accumulate units of accelerators", native=True),
    Row("mac_unfused", "multiply-accumulate with three roundings",
        "g - g*(y*y)", "multiply-accumulate units of accelerators", native=True),
    Row("factored", "without cancellation; accurate near |y| = 1",
        "g*((1 - y)*(1 + y))",
        "difference of squares; N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.7",
        native=True),
    Row("bf16", "everything in bfloat16",
        "bf16: g*(1 - y*y), inputs and each operation rounded",
        "torch._decomp.decompositions.tanh_backward without its cast to float32"),
    Row("bf16_truncated", "y*y truncated to bfloat16 (rounded towards zero); the rest in float32 or float64",
        "g*(1 - truncate_bf16(y*y))", "hardware that drops the low 16 bits of float32"),
    # The example of a user's kernel is also a shipped kernel; its file has the same description.
    Row("triton", "one Triton kernel: 1 - y*y with one rounding, times g",
        "g*fma(-y, y, 1)", "ATen's vectorised CPU kernel, FMA-contracted",
        function="triton_tanh_backward:tanh_backward", dtypes=("float32", "float64"), devices=("cuda",)),
)

SIGMOID = (
    decomposition("1/(1 + exp(-x))", "torch._refs.sigmoid"),
    Row("tanh_form", "via tanh; inaccurate in the left tail",
        "0.5*(1 + tanh(0.5*x))", "sigmoid(x) = (1 + tanh(x/2))/2"),
    Row("two_sided", "exp of negative numbers only; does not overflow",
        "e/(1 + e) for x < 0, 1/(1 + e) else, e = exp(-|x|)", "SciPy's expit and most numerical libraries"),
    Row("softplus_form", "exp of log sigmoid; the relative error grows with |x| on the left",
        "exp(-(log1p(exp(-|x|)) + max(-x, 0)))", "jax.nn.log_sigmoid"),
    Row("bf16", "everything in bfloat16",
        "bf16: 1/(1 + exp(-x)), input and each operation rounded", "torch._refs.sigmoid"),
)

# y*(1 - y) is y - y*y, whose two terms nearly cancel for y near 1.
SIGMOID_BACKWARD = (
    decomposition("g*(y*(1 - y))", "torch._decomp.decompositions.sigmoid_backward"),
    Row("left_to_right", "the products in ATen's order, bit for bit what it computes for float32",
        "(g*(1 - y))*y", "ATen/native/cpu/BinaryOpsKernel.cpp sigmoid_backward_kernel"),
    Row("fma", "y - y*y with one rounding",
        "g*fma(-y, y, y)", "y*(1 - y) = y - y*y, contracted", native=True),
    Row("unfused", "y - y*y with two roundings; cancels near y = 1",
        "g*(y - y*y)", "y*(1 - y) = y - y*y"),
    Row("mac", "multiply-accumulate with one rounding after that of g*y",
        "fma(-(g*y), y, g*y)", "multiply-accumulate units of accelerators"),
    Row("bf16", "everything in bfloat16",
        "bf16: g*(y*(1 - y)), inputs and each operation rounded",
        "torch._decomp.decompositions.sigmoid_backward without its cast to float32"),
)

# x*sigmoid(x) cancels nowhere: the kernels differ in the sigmoid, and in the rounding of the sum.
SILU = (
    decomposition("x*sigmoid(x)", "torch._decomp.decompositions.silu"),
    Row("exp_form", "one quotient, ATen's formula; its exp sometimes differs from torch.exp by one ULP",
        "x/(1 + exp(-x))", "ATen/native/cpu/Activation.cpp silu_kernel"),
    Row("tanh_form", "via tanh; inaccurate in the left tail",
        "h*(1 + tanh(h)), h = 0.5*x", "sigmoid(x) = (1 + tanh(x/2))/2"),
    Row("fma", "via tanh, the sum with one rounding",
        "fma(h, tanh(h), h), h = 0.5*x", "sigmoid(x) = (1 + tanh(x/2))/2"),
    Row("bf16", "everything in bfloat16",
        "bf16: x*sigmoid(x), input and each operation rounded",
        "torch._decomp.decompositions.silu without its cast to float32"),
)

SILU_BACKWARD = (
    decomposition("(g*s)*(1 + x*(1 - s)), s = sigmoid(x)", "torch._decomp.decompositions.silu_backward"),
    Row("derivative_first", "the gradient multiplied last",
        "g*(s*(1 + x*(1 - s))), s = sigmoid(x)", "torch._decomp.decompositions.silu_backward, reordered"),
    Row("fma", "the inner sum with one rounding, what ATen's vector code computes for float32 where the CPU has FMA",
        "(g*s)*fma(x, 1 - s, 1), s = sigmoid(x)",
        "ATen/native/cpu/Activation.cpp silu_backward_kernel, contracted by the compiler"),
    Row("expanded", "sum of two products",
        "g*(s + x*s*(1 - s)), s = sigmoid(x)", "product rule on x*sigmoid(x)"),
    Row("from_output", "in terms of the output; cancels on the left",
        "g*(y + s*(1 - y)), y = x*s, s = sigmoid(x)",
        "P. Ramachandran, B. Zoph and Q. V. Le, Searching for Activation Functions, arXiv 1710.05941"),
    Row("bf16", "everything in bfloat16",
        "bf16: (g*s)*(1 + x*(1 - s)), inputs and each operation rounded",
        "torch._decomp.decompositions.silu_backward without its cast to float32"),
)

_U = "u = b*(x + 0.044715*(x*x*x)), b = sqrt(2/pi)"

# Each kernel computes both forms of the op, so its formula shows both.
GELU = (
    decomposition(
        f"none: (x*0.5)*(1 + erf(x*sqrt(0.5))); tanh: (0.5*x)*(1 + tanh(u)), {_U}", "torch._refs.nn.functional.gelu"
    ),
    Row("erfc", "accurate in the left tail",
        f"none: 0.5*x*erfc(-sqrt(0.5)*x); tanh: x/(1 + exp(-2*u)), {_U}", "1 + erf(z) = erfc(-z)"),
    Row("fma", "the sum with one rounding",
        f"fma(h, t, h), h = 0.5*x; t = erf(sqrt(0.5)*x), or tanh(u), {_U}",
        "torch._refs.nn.functional.gelu, distributed and contracted"),
    Row("distributed", "the sum last, with two roundings",
        f"h + h*t, h = 0.5*x; t = erf(sqrt(0.5)*x), or tanh(u), {_U}", "torch._refs.nn.functional.gelu, distributed"),
    Row("tanh_form", "the tanh form, even for approximate='none', which means a different function",
        f"(0.5*x)*(1 + tanh(u)), {_U}", "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415"),
    Row("exp_form", "the tanh form via exp, even for approximate='none'",
        f"x/(1 + exp(-2*u)), {_U}", "(1 + tanh(u))/2 = sigmoid(2*u)"),
    Row("quick", "a coarse approximation for either form",
        "x*sigmoid(1.702*x)", "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415"),
    Row("bf16", "everything in bfloat16",
        "bf16: 0.5*x*(1 + t), t as for fma, input and each operation rounded",
        "torch._refs.nn.functional.gelu without its cast to float32"),
)

GELU_BACKWARD = (
    decomposition(
        "none: g*(cdf + x*pdf), cdf = 0.5*(1 + erf(x*sqrt(0.5))), pdf = exp(x*x*-0.5)/sqrt(2*pi);"
        f" tanh: g*(0.5*(1 + t) + (0.5*x)*(1 - t*t)*b*(1 + 3*0.044715*(x*x))), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward",
    ),
    Row("erfc", "accurate in both tails",
        f"none: g*(0.5*erfc(-sqrt(0.5)*x) + x*pdf); tanh: g*(s + x*s*sigmoid(-2*u)*2*u'), s = sigmoid(2*u), {_U}",
        "1 + erf(z) = erfc(-z)"),
    Row("fma", "the sum with one rounding",
        f"g*fma(x, pdf, cdf); tanh: g*fma(x, 0.5*(1 - t*t)*u', 0.5*(1 + t)), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward, contracted"),
    Row("distributed", "the gradient multiplied into both terms",
        f"g*cdf + (g*x)*pdf; tanh: g*0.5*(1 + t) + (g*x)*(0.5*(1 - t*t)*u'), t = tanh(u), {_U}",
        "torch._decomp.decompositions.gelu_backward, distributed"),
    Row("tanh_form", "the derivative of the tanh form, even for approximate='none', which means a different function",
        f"g*(0.5*(1 + t) + x*(0.5*(1 - t*t)*u')), t = tanh(u), {_U}",
        "D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv 1606.08415"),
    Row("bf16", "everything in bfloat16",
        "bf16: g*(cdf + x*pdf), or the tanh form's, inputs and each operation rounded",
        "torch._decomp.decompositions.gelu_backward without its cast to float32"),
)

# The ops of optimizers and interpolation. For the half formats, scalars are used in float32, as in ATen.

ADDCMUL = (
    decomposition("self + (value*tensor1)*tensor2", "torch._refs.addcmul"),
    Row("fma", "the last product and the sum with one rounding, what ATen computes where the CPU has FMA",
        "fma(value*tensor1, tensor2, self)",
        "ATen/native/cpu/PointwiseOpsKernel.cpp addcmul_cpu_kernel, contracted by the compiler", native=True),
    Row("product_first", "the tensors multiplied first, as Inductor does on a CPU",
        "self + value*(tensor1*tensor2)", "torch._inductor.lowering.addcmul"),
    Row("fma_product_first", "the tensors multiplied first, then one rounding, as on CUDA for value != 1",
        "fma(value, tensor1*tensor2, self)",
        "torch._inductor.lowering.addcmul, which matches ATen/native/cuda/PointwiseOpsKernel.cu"),
    Row("bf16", "everything except value in bfloat16",
        "bf16: self + (value*tensor1)*tensor2, inputs and each operation rounded",
        "torch._refs.addcmul without its cast to float32"),
)

ADDCDIV = (
    decomposition("self + (value*tensor1)/tensor2", "torch._refs.addcdiv"),
    Row("quotient_first", "the tensors divided first, as Inductor does on a CPU",
        "self + value*(tensor1/tensor2)", "torch._inductor.lowering.addcdiv"),
    Row("fma", "the tensors divided first, then one rounding, as on CUDA for value != 1",
        "fma(value, tensor1/tensor2, self)",
        "torch._inductor.lowering.addcdiv, which matches ATen/native/cuda/PointwiseOpsKernel.cu"),
    Row("reciprocal", "a product with the rounded reciprocal instead of the quotient",
        "self + (value*tensor1)*(1/tensor2)", "compilers with -freciprocal-math"),
    Row("bf16", "everything except value in bfloat16",
        "bf16: self + (value*tensor1)/tensor2, inputs and each operation rounded",
        "torch._refs.addcdiv without its cast to float32"),
)

LERP = (
    decomposition(
        "(weight - 1)*(end - start) + end for |weight| >= 0.5, weight*(end - start) + start else", "torch._refs.lerp"
    ),
    Row("fma", "always from start, the product and the sum with one rounding; end itself may be missed at weight 1",
        "fma(weight, end - start, start)", "mix() of shading languages, contracted", native=True),
    Row("fma_two_sided",
        "from the nearer end, the product and the sum with one rounding, what ATen computes where the CPU has FMA",
        "fma(weight - 1, end - start, end) for |weight| >= 0.5, fma(weight, end - start, start) else",
        "ATen/native/cpu/LerpKernel.cpp lerp_vec"),
    Row("one_sided", "always from start",
        "start + weight*(end - start)", "definition of linear interpolation"),
    Row("two_products", "sum of two products, exact at both ends, not monotone",
        "(1 - weight)*start + weight*end", "exponential moving averages as most optimizers write them"),
    Row("bf16", "everything except a scalar weight in bfloat16",
        "bf16: start + weight*(end - start), inputs and each operation rounded", "definition of linear interpolation"),
)
# fmt: on

_OPS = (
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

OPS = tuple(
    OpKernels(
        Operation(
            op,
            family,
            summary,
            reference=f"numdrift.kernels.references.elementwise_references:{op}",
            exact=f"numdrift.kernels.lab.exact:{op}",
        ),
        module,
        rows,
        prefix,
    )
    for family, op, summary, module, prefix, rows in _OPS
)
