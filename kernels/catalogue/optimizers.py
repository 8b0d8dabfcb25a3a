"""The kernels of Adam's ops, over lists of tensors and fused, with the texts that users read about them."""

from __future__ import annotations

from ..registry import Operation
from .table import OpKernels, Row

FAMILY = "optimizer"
BOOK = "p + (-lr/(1-beta1^t) * m) / (sqrt(v)/sqrt(1-beta2^t) + eps)"
# The ops on lists that Adam calls with foreach=True, and their formulas.
FOREACH = {
    "addcmul": "self + value * (tensor1*tensor2)",
    "addcdiv": "self + value * (tensor1/tensor2)",
    "lerp": "self + weight * (end-self)",
    "mul": "self * other",
    "add": "self + alpha*other",
    "div": "self / other",
    "sqrt": "sqrt(self)",
}

# fmt: off
ADAM = (
    Row("decomposed", "operation by operation in the dtype of the tensors, as with foreach=False",
        BOOK, "torch/optim/adam.py, _single_tensor_adam"),
    Row("capturable", "the step size divided into the denominator, as with capturable=True and in compiled graphs",
        "p + m / (sqrt(v)/(-a*sqrt(1-beta2^t)) + eps/-a), a = lr/(1-beta1^t)",
        "torch/optim/adam.py, _single_tensor_adam"),
    Row("bf16_moments", "both moments rounded to bfloat16 whenever they are stored",
        f"{BOOK}, m and v rounded to bfloat16", "torch/optim/adam.py, with moments as 16-bit optimizers keep them"),
    Row("fp64", "the formula in float64, all lists rounded once",
        f"round({BOOK})", "torch/optim/adam.py, _single_tensor_adam"),
)


def _foreach_rows(single: str, formula: str) -> tuple[Row, ...]:
    """Return the kernels of an op over lists; `single` is the op on one tensor."""
    # 256 + 1 in bfloat16 is 256: the next number is 258
    bf16 = "tensors rounded to bfloat16" + ("; step counts stop at 256" if single == "add" else "")
    reciprocal = Row("reciprocal", "multiplication by the reciprocal", "self * (1/other)", "the definition")
    return (
        Row("per_tensor", f"aten.{single} on each tensor separately",
            f"{single}(self[i], ...), i = 0, 1, ...", "ATen/native/ForeachOpsKernels.cpp, the slow path"),
        Row("decomposed", "separate operations on each tensor, each rounded", formula, "the op's definition"),
        Row("bf16", bf16, f"bf16({formula})", f"aten.{single}"),
        *([reciprocal] if single == "div" else []),
    )
# fmt: on


OPS = (
    *(
        OpKernels(
            Operation(f"_foreach_{single}", FAMILY, f"{single} on each element of lists of tensors"),
            "foreach",
            _foreach_rows(single, formula),
            of_any_op=True,
        )
        for single, formula in FOREACH.items()
    ),
    *(
        OpKernels(Operation(op, FAMILY, f"a step of {name} over lists of tensors, {written}"), "adam", ADAM, prefix)
        for op, prefix, name, written in (
            ("_fused_adam_", "adam_", "Adam", "in place"),
            ("_fused_adamw_", "adamw_", "AdamW", "in place"),
            ("_fused_adam", "functional_adam_", "Adam", "into new lists"),
            ("_fused_adamw", "functional_adamw_", "AdamW", "into new lists"),
        )
    ),
)
