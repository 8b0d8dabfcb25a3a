"""Softmaxes, layer norm and batch norm, with their backwards."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from . import softmaxes
from .table import CatalogueRow, records

FAMILY = "normalization"
OF_GRAPHS = (
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
)
"""What native_batch_norm is in a compiled graph."""
TWO_PASS = "(x-mean) * (1/sqrt(var+eps)) * weight + bias, var = sum((x-mean)^2) / n"
CHAN = "T. Chan, G. Golub, R. LeVeque, Updating Formulae for Computing Sample Variances, 1979"


def register(registry: KernelRegistry) -> None:
    softmaxes.register(registry)
    _register_layer_norm(registry)
    _register_batch_norm(registry)
    _register_batch_norm_of_graphs(registry)


def _register_layer_norm(registry: KernelRegistry) -> None:
    op = "native_layer_norm"
    rows = _forms("")
    registry.register(Operation(op, FAMILY, "layer norm with its statistics"), records(op, "layer_norm", rows))
    op = "native_layer_norm_backward"
    rows = (
        CatalogueRow(
            "centered",
            "centered",
            "the textbook form, two means of each row",
            "rstd * (gy - mean(gy) - xhat*mean(gy*xhat)), xhat = (x-mean)*rstd, gy = g*weight",
            "J. Ba, J. Kiros, G. Hinton, Layer Normalization, 2016",
        ),
        CatalogueRow(
            "linear_form",
            "linear_form",
            "rstd*gy + b*x + c as ATen's CPU kernel has it; cancels when the mean is large",
            "b = (sum(gy)*mean - sum(gy*x)) * rstd^3 / n, c = -b*mean - sum(gy)*rstd/n",
            "ATen/native/cpu/layer_norm_kernel.cpp",
        ),
        CatalogueRow(
            "reversed",
            "reversed_order",
            "the textbook form, summed from last to first",
            "as centered, over reversed elements",
            "as centered",
        ),
        CatalogueRow(
            "bf16",
            "bf16",
            "the textbook form, each operation rounded to bfloat16",
            "bf16(rstd * (gy - mean(gy) - xhat*mean(gy*xhat)))",
            "as centered",
        ),
    )
    operation = Operation(op, FAMILY, "gradients of layer norm")
    registry.register(operation, records(op, "layer_norm_backward", rows))


def _register_batch_norm(registry: KernelRegistry) -> None:
    op = "native_batch_norm"
    summary = "batch norm; updates running_mean and running_var, which its schema does not say"
    operation = Operation(op, FAMILY, summary, also=OF_GRAPHS)
    registry.register(operation, records(op, "batch_norm", (*_forms(""), _in_float64(""))))
    op = "native_batch_norm_backward"
    rows = (
        CatalogueRow(
            "centered",
            "centered",
            "the textbook form, the mean subtracted before the sum",
            "(g - mean(g) - xhat*mean(g*xhat)) * invstd*weight; in evaluation g * (invstd*weight)",
            "S. Ioffe, C. Szegedy, Batch Normalization, 2015",
        ),
        CatalogueRow(
            "raw_sums",
            "raw_sums",
            "sum(g*(x-mean)) as sum(g*x) - mean*sum(g); cancels when the mean is large",
            "as centered, with sum(g*x) - mean*sum(g)",
            "the one-pass form of the same sum",
        ),
        CatalogueRow(
            "reversed",
            "reversed_order",
            "the textbook form, summed from last to first",
            "as centered, over reversed elements",
            "as centered",
        ),
        CatalogueRow(
            "bf16",
            "bf16",
            "the textbook form, each operation rounded to bfloat16",
            "bf16((g - mean(g) - xhat*mean(g*xhat)) * invstd*weight)",
            "as centered",
        ),
    )
    operation = Operation(op, FAMILY, "gradients of batch norm")
    registry.register(operation, records(op, "batch_norm_backward", rows))


def _register_batch_norm_of_graphs(registry: KernelRegistry) -> None:
    """The ops that are native_batch_norm in a compiled graph; their arguments or results are other ones."""
    for op, prefix, summary in (
        ("_native_batch_norm_legit", "legit_", "batch norm whose schema says what it writes"),
        ("_native_batch_norm_legit_functional", "functional_", "batch norm in training in compiled graphs"),
    ):
        registry.register(
            Operation(op, FAMILY, summary), records(op, "batch_norm", (*_forms(prefix), _in_float64(prefix)))
        )
    op = "_native_batch_norm_legit_no_training"
    rows = tuple(row for row in _forms("no_training_") if row.name in ("two_pass", "bf16"))
    affine = CatalogueRow(
        "affine",
        "no_training_affine",
        "one factor and one summand for each channel, as ATen's CPU kernel has it",
        "x*a + b, a = invstd*weight, b = bias - mean*a",
        "ATen/native/cpu/batch_norm_kernel.cpp",
    )
    operation = Operation(op, FAMILY, "batch norm in evaluation in compiled graphs")
    registry.register(operation, records(op, "batch_norm", (*rows, affine, _in_float64("no_training_"))))


def _in_float64(prefix: str) -> CatalogueRow:
    """Not the op replayed: in lazy mode its hidden writes to copies of the statistics would be lost."""
    return CatalogueRow(
        "fp64",
        f"{prefix}fp64",
        "the two-pass form in float64, rounded once, the running statistics too",
        f"round({TWO_PASS})",
        "the definition",
    )


def _forms(prefix: str) -> tuple[CatalogueRow, ...]:
    return (
        CatalogueRow(
            "two_pass",
            f"{prefix}two_pass",
            "the mean first, then the deviations from it",
            TWO_PASS,
            "the definition",
        ),
        CatalogueRow(
            "one_pass",
            f"{prefix}one_pass",
            "variance from raw moments; cancels when the mean is large, and can give NaN",
            "as two_pass, var = sum(x^2)/n - (sum(x)/n)^2",
            "the definition of the variance, expanded",
        ),
        CatalogueRow(
            "shifted",
            f"{prefix}shifted",
            "raw moments of the differences from the first element",
            "as two_pass, var = sum((x-x[0])^2)/n - (sum(x-x[0])/n)^2",
            CHAN,
        ),
        CatalogueRow(
            "welford",
            f"{prefix}welford",
            "one pass over blocks of 64, their moments merged one after the other",
            "d = mean_b-mean, mean += d*(n_b/n), M2 += M2_b + d^2*(n_a*n_b/n), var = M2/n",
            f"{CHAN}, equation 2.1",
        ),
        CatalogueRow(
            "reversed",
            f"{prefix}reversed_order",
            "the two-pass form, summed from last to first",
            "as two_pass, over reversed elements",
            "the definition",
        ),
        CatalogueRow(
            "bf16",
            f"{prefix}bf16",
            "the two-pass form, each operation rounded to bfloat16",
            f"bf16({TWO_PASS})",
            "the definition",
        ),
    )
