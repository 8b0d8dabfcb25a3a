"""The ops that Adam is made of: over lists of tensors, and fused."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from .table import CatalogueRow, records

FAMILY = "optimizer"
BOOK = "p + (-lr/(1-beta1^t) * m) / (sqrt(v)/sqrt(1-beta2^t) + eps)"
FOREACH = {
    "_foreach_addcmul": "self + value * (tensor1*tensor2)",
    "_foreach_addcdiv": "self + value * (tensor1/tensor2)",
    "_foreach_lerp": "self + weight * (end-self)",
    "_foreach_mul": "self * other",
    "_foreach_add": "self + alpha*other",
    "_foreach_div": "self / other",
    "_foreach_sqrt": "sqrt(self)",
}


def register(registry: KernelRegistry) -> None:
    for op, formula in FOREACH.items():
        single = op.removeprefix("_foreach_")
        rows = _foreach_rows(op, single, formula)
        operation = Operation(op, FAMILY, f"{single} at each place of lists of tensors")
        registry.register(operation, records(op, "foreach", rows, of_any_op=True))
    for op, prefix, name in (
        ("_fused_adam_", "adam", "Adam"),
        ("_fused_adamw_", "adamw", "AdamW"),
        ("_fused_adam", "functional_adam", "Adam"),
        ("_fused_adamw", "functional_adamw", "AdamW"),
    ):
        how = "in place" if op.endswith("_") else "into new lists"
        operation = Operation(op, FAMILY, f"a step of {name} over lists of tensors, {how}")
        registry.register(operation, records(op, "adam", _adam_rows(prefix)))


def _foreach_rows(op: str, single: str, formula: str) -> tuple[CatalogueRow, ...]:
    rows = (
        CatalogueRow(
            "per_tensor",
            "per_tensor",
            f"aten.{single} on each tensor by itself",
            f"{single}(self[i], ...), i = 0, 1, ...",
            "ATen/native/ForeachOpsKernels.cpp, the slow path",
        ),
        CatalogueRow(
            "decomposed",
            "decomposed",
            "separate operations on each tensor, each rounded",
            formula,
            "the op's definition",
        ),
        CatalogueRow(
            "bf16",
            "bf16",
            "tensors rounded to bfloat16; counts of steps stop at 256"
            if single == "add"
            else "tensors rounded to bfloat16",
            f"bf16({formula})",
            f"aten.{single}",
        ),
    )
    if single != "div":
        return rows
    reciprocal = CatalogueRow(
        "reciprocal", "reciprocal", "multiplication by the reciprocal", "self * (1/other)", "the definition"
    )
    return (*rows, reciprocal)


def _adam_rows(prefix: str) -> tuple[CatalogueRow, ...]:
    return (
        CatalogueRow(
            "decomposed",
            f"{prefix}_decomposed",
            "operation by operation in the dtype of the tensors, as with foreach=False",
            BOOK,
            "torch/optim/adam.py, _single_tensor_adam",
        ),
        CatalogueRow(
            "capturable",
            f"{prefix}_capturable",
            "the step size divided into the denominator, as with capturable=True and in compiled graphs",
            "p + m / (sqrt(v)/(-a*sqrt(1-beta2^t)) + eps/-a), a = lr/(1-beta1^t)",
            "torch/optim/adam.py, _single_tensor_adam",
        ),
        CatalogueRow(
            "bf16_moments",
            f"{prefix}_bf16_moments",
            "both moments rounded to bfloat16 whenever they are stored",
            f"{BOOK}, m and v rounded to bfloat16",
            "torch/optim/adam.py, with moments as 16-bit optimizers keep them",
        ),
        CatalogueRow(
            "fp64",
            f"{prefix}_fp64",
            "the formula in float64, all lists rounded once",
            f"round({BOOK})",
            "torch/optim/adam.py, _single_tensor_adam",
        ),
    )
