"""The kernels of softmaxes, layer norm, batch norm and their backwards, with the texts that users read about them."""

from __future__ import annotations

from ..registry import Operation
from .table import OpKernels, Row

TWO_PASS = "(x-mean) * (1/sqrt(var+eps)) * weight + bias, var = sum((x-mean)^2) / n"
CHAN = "T. Chan, G. Golub, R. LeVeque, Updating Formulae for Computing Sample Variances, 1979"
ONLINE_SOURCE = "M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, 2018"
ATEN_SOURCE = "ATen/native/cpu/SoftMaxKernel.cpp"

# fmt: off
SOFTMAX_BACKWARD = (
    Row("factored", "the difference before the product, as in ATen's CPU kernel",
        "y * (g - sum(g*y))", ATEN_SOURCE),
    Row("reversed", "sums from the last element to the first",
        "g*y - y * sum(reversed(g*y))", "torch._decomp, the elements reversed"),
    Row("bf16", "each operation rounded to bfloat16",
        "bf16(g*y - y * sum(g*y))", "torch._decomp, without its internal float32"),
)
LOG_SOFTMAX_BACKWARD = (
    Row("renormalized", "the probabilities rescaled to add up to 1",
        "g - p / sum(p) * sum(g), p = exp(y)", "the definition"),
    Row("reversed", "sums from the last element to the first",
        "g - exp(y) * sum(reversed(g))", "torch._decomp, the elements reversed"),
    Row("bf16", "each operation rounded to bfloat16",
        "bf16(g - exp(y) * sum(g))", "torch._decomp, without its internal float32"),
)

MOMENTS = (
    Row("two_pass", "the mean first, then the deviations from it",
        TWO_PASS, "the definition"),
    Row("one_pass", "variance from raw moments; cancels when the mean is large, and can give NaN",
        "as two_pass, var = sum(x^2)/n - (sum(x)/n)^2", "the definition of the variance, expanded"),
    Row("shifted", "raw moments of the differences from the first element",
        "as two_pass, var = sum((x-x[0])^2)/n - (sum(x-x[0])/n)^2", CHAN),
    Row("welford", "one pass over blocks of 64, their moments merged one after the other",
        "d = mean_b-mean, mean += d*(n_b/n), M2 += M2_b + d^2*(n_a*n_b/n), var = M2/n", f"{CHAN}, equation 2.1"),
    Row("reversed", "the two-pass form, summed from last to first",
        "as two_pass, over reversed elements", "the definition", function="reversed_order"),
    Row("bf16", "the two-pass form, each operation rounded to bfloat16",
        f"bf16({TWO_PASS})", "the definition"),
)
"""Ways to compute mean and variance, in layer norm and batch norm alike."""

IN_FLOAT64 = Row("fp64", "the two-pass form in float64, rounded once, including the running statistics",
    f"round({TWO_PASS})", "the definition")
"""A separate kernel instead of the op on float64 copies: the op updates the running statistics although its schema does
not say so, and in lazy mode its updates of the copies would be lost."""

AFFINE = Row("affine", "one factor and one summand for each channel, as in ATen's CPU kernel",
    "x*a + b, a = invstd*weight, b = bias - mean*a", "ATen/native/cpu/batch_norm_kernel.cpp")
# The formulas are those of the input's gradient. The gradients of weight and bias are sums in every kernel.
LAYER_NORM_BACKWARD = (
    Row("centered", "the textbook form, two means of each row",
        "rstd * (gy - mean(gy) - xhat*mean(gy*xhat)), xhat = (x-mean)*rstd, gy = g*weight",
        "J. Ba, J. Kiros, G. Hinton, Layer Normalization, 2016"),
    Row("linear_form", "rstd*gy + b*x + c, as in ATen's CPU kernel; cancels when the mean is large",
        "b = (sum(gy)*mean - sum(gy*x)) * rstd^3 / n, c = -b*mean - sum(gy)*rstd/n",
        "ATen/native/cpu/layer_norm_kernel.cpp"),
    Row("reversed", "the textbook form, summed from last to first",
        "as centered, over reversed elements", "as centered", function="reversed_order"),
    Row("bf16", "the textbook form, each operation rounded to bfloat16",
        "bf16(rstd * (gy - mean(gy) - xhat*mean(gy*xhat)))", "as centered"),
)
BATCH_NORM_BACKWARD = (
    Row("centered", "the textbook form, the mean subtracted before the sum",
        "(g - mean(g) - xhat*mean(g*xhat)) * invstd*weight; in evaluation g * (invstd*weight)",
        "S. Ioffe, C. Szegedy, Batch Normalization, 2015"),
    Row("raw_sums", "sum(g*(x-mean)) as sum(g*x) - mean*sum(g); cancels when the mean is large",
        "as centered, with sum(g*x) - mean*sum(g)", "the one-pass form of the same sum"),
    Row("reversed", "the textbook form, summed from last to first",
        "as centered, over reversed elements", "as centered", function="reversed_order"),
    Row("bf16", "the textbook form, each operation rounded to bfloat16",
        "bf16((g - mean(g) - xhat*mean(g*xhat)) * invstd*weight)", "as centered"),
)


def _softmax_rows(result: str) -> tuple[Row, ...]:
    """Return the forms of a softmax whose shift is m and whose sum is s; `result` is the formula that uses them."""
    return (
        Row("without_max", "does not subtract the maximum; overflows for large inputs (above 88 in float32)",
            f"{result}, m = 0, s = sum(exp(x))", "the definition"),
        Row("online", "one pass over blocks of 64, rescaled whenever the maximum grows, as flash attention does",
            f"{result}; for each block b: M = max(m, max(b)), s = s*exp(m-M) + sum(exp(b-M)), m = M", ONLINE_SOURCE),
        Row("reversed", "sums from the last element to the first",
            f"{result}, m = max(x), s = sum(reversed(exp(x-m)))", f"{ATEN_SOURCE}, the elements reversed"),
        Row("bf16", "each operation rounded to bfloat16",
            f"bf16({result}), m = max(x), s = bf16(sum(bf16(exp(x-m))))",
            f"{ATEN_SOURCE}, without its internal float32"),
    )


LOG_OF_SOFTMAX = Row("log_of_softmax", "the logarithm of the softmax; -inf where a probability underflows",
    "log(exp(x-m) / sum(exp(x-m))), m = max(x)",
    "torch.nn.functional.log_softmax, the note against log(softmax(x))", function="of_softmax")
# fmt: on


def _normalization(
    op: str, summary: str, module: str, rows: tuple[Row, ...], prefix: str = "", also: tuple[str, ...] = ()
) -> OpKernels:
    return OpKernels(Operation(op, "normalization", summary, also=also), module, rows, prefix)


# The ops that replace native_batch_norm in a compiled graph. Their arguments or results differ from its own.
_LEGIT, _FUNCTIONAL = "_native_batch_norm_legit", "_native_batch_norm_legit_functional"
_NO_TRAINING = "_native_batch_norm_legit_no_training"

BATCH_NORM = (*MOMENTS, IN_FLOAT64)

IN_EVALUATION = (*(row for row in MOMENTS if row.name in ("two_pass", "bf16")), AFFINE, IN_FLOAT64)
"""Evaluation computes no moments, so only forms that round differently are separate kernels."""

OPS = (
    *(
        _normalization(f"_{name}", f"{name.replace('_', ' ')} over one dimension", "softmax", rows, f"{name}_")
        for name, rows in (
            ("softmax", _softmax_rows("exp(x-m) / s")),
            ("log_softmax", (*_softmax_rows("(x-m) - log(s)"), LOG_OF_SOFTMAX)),
            ("safe_softmax", _softmax_rows("exp(x-m) / s, 0 where all x are -inf")),
        )
    ),
    *(
        _normalization(f"_{name}_backward_data", f"gradient of _{name}", "softmax", rows, f"{name}_backward_")
        for name, rows in (("softmax", SOFTMAX_BACKWARD), ("log_softmax", LOG_SOFTMAX_BACKWARD))
    ),
    _normalization("native_layer_norm", "layer norm with its statistics", "layer_norm", MOMENTS),
    _normalization(
        "native_layer_norm_backward", "gradients of layer norm", "layer_norm", LAYER_NORM_BACKWARD, "backward_"
    ),
    _normalization(
        "native_batch_norm",
        "batch norm; updates running_mean and running_var, although its schema does not say so",
        "batch_norm",
        BATCH_NORM,
        also=(_LEGIT, _FUNCTIONAL, _NO_TRAINING),
    ),
    _normalization(
        "native_batch_norm_backward", "gradients of batch norm", "batch_norm", BATCH_NORM_BACKWARD, "backward_"
    ),
    _normalization(_LEGIT, "batch norm whose schema says what it writes", "batch_norm", BATCH_NORM, "legit_"),
    _normalization(_FUNCTIONAL, "batch norm in training in compiled graphs", "batch_norm", BATCH_NORM, "functional_"),
    _normalization(
        _NO_TRAINING, "batch norm in evaluation in compiled graphs", "batch_norm", IN_EVALUATION, "no_training_"
    ),
)
