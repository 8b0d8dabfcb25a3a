"""The kernels of Adam's ops, over lists of tensors and fused, and the texts that users read about each."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from .table import CatalogueRow, records

FAMILY = "optimizer"
BOOK = "p + (-lr/(1-beta1^t) * m) / (sqrt(v)/sqrt(1-beta2^t) + eps)"
# The list ops of Adam with foreach=True.
FOREACH = {
    "_foreach_addcmul": "self + value * (tensor1*tensor2)",
    "_foreach_addcdiv": "self + value * (tensor1/tensor2)",
    "_foreach_lerp": "self + weight * (end-self)",
    "_foreach_mul": "self * other",
    "_foreach_add": "self + alpha*other",
    "_foreach_div": "self / other",
    "_foreach_sqrt": "sqrt(self)",
}


ADAM = (
    CatalogueRow(
        "decomposed",
        "operation by operation in the dtype of the tensors, as with foreach=False",
        BOOK,
        "torch/optim/adam.py, _single_tensor_adam",
    ),
    CatalogueRow(
        "capturable",
        "the step size divided into the denominator, as with capturable=True and in compiled graphs",
        "p + m / (sqrt(v)/(-a*sqrt(1-beta2^t)) + eps/-a), a = lr/(1-beta1^t)",
        "torch/optim/adam.py, _single_tensor_adam",
    ),
    CatalogueRow(
        "bf16_moments",
        "both moments rounded to bfloat16 whenever they are stored",
        f"{BOOK}, m and v rounded to bfloat16",
        "torch/optim/adam.py, with moments as 16-bit optimizers keep them",
    ),
    CatalogueRow(
        "fp64",
        "the formula in float64, all lists rounded once",
        f"round({BOOK})",
        "torch/optim/adam.py, _single_tensor_adam",
    ),
)


def register(registry: KernelRegistry) -> None:
    """Add the `_foreach` ops and the fused ones."""
    for op, formula in FOREACH.items():
        single = op.removeprefix("_foreach_")
        rows = (
            CatalogueRow(
                "per_tensor",
                f"aten.{single} on each tensor by itself",
                f"{single}(self[i], ...), i = 0, 1, ...",
                "ATen/native/ForeachOpsKernels.cpp, the slow path",
            ),
            CatalogueRow(
                "decomposed",
                "separate operations on each tensor, each rounded",
                formula,
                "the op's definition",
            ),
            CatalogueRow(
                "bf16",
                # 256 + 1 in bfloat16 is 256: the next number is 258
                "tensors rounded to bfloat16; counts of steps stop at 256"
                if single == "add"
                else "tensors rounded to bfloat16",
                f"bf16({formula})",
                f"aten.{single}",
            ),
            *((CatalogueRow("reciprocal", "multiplication by the reciprocal", "self * (1/other)", "the definition"),)
              if single == "div" else ()),
        )  # fmt: skip
        operation = Operation(op, FAMILY, f"{single} at each place of lists of tensors")
        registry.register(operation, records(op, "foreach", rows, of_any_op=True))
    for op, prefix, name in (
        ("_fused_adam_", "adam_", "Adam"),
        ("_fused_adamw_", "adamw_", "AdamW"),
        ("_fused_adam", "functional_adam_", "Adam"),
        ("_fused_adamw", "functional_adamw_", "AdamW"),
    ):
        how = "in place" if op.endswith("_") else "into new lists"
        operation = Operation(op, FAMILY, f"a step of {name} over lists of tensors, {how}")
        registry.register(operation, records(op, "adam", ADAM, prefix=prefix))
