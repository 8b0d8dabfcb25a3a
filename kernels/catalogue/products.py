"""Matrix products, linear and attention."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from . import attention_ops as attention
from .table import CatalogueRow, records

FAMILY = "product"
VELTKAMP = "T. Dekker, A Floating-Point Technique for Extending the Available Precision, 1971"


def register(registry: KernelRegistry) -> None:
    _register_matrices(registry)
    _register_linear(registry)
    attention.register(registry)


def _register_matrices(registry: KernelRegistry) -> None:
    decomposed = CatalogueRow(
        "decomposed",
        "mm_decomposed",
        "every product rounded, then ATen's sum over k; needs memory for all products",
        "sum over k of round(a[i,k] * b[k,j])",
        "torch._inductor.decomposition, mm and bmm",
    )
    for op, prefix, summary in (
        ("mm", "mm", "product of two matrices"),
        ("bmm", "mm", "products of two batches of matrices"),
        ("addmm", "addmm", "beta * self + alpha * (product of two matrices)"),
    ):
        reference = f"numdrift.kernels.references.sum_references:{op}"
        rows = _orders(prefix) if op == "addmm" else (*_orders(prefix), decomposed)
        registry.register(Operation(op, FAMILY, summary, reference), records(op, "matmul", rows))


def _orders(prefix: str) -> tuple[CatalogueRow, ...]:
    return (
        CatalogueRow(
            "split_k",
            f"{prefix}_split_k",
            "the inner dimension in 4 parts, their products added first to last",
            "((mm(a1,b1) + mm(a2,b2)) + mm(a3,b3)) + mm(a4,b4)",
            "split-K as in CUTLASS",
        ),
        CatalogueRow(
            "reversed_k",
            f"{prefix}_reversed_k",
            "the inner dimension from last to first",
            "mm(a[:, ::-1], b[::-1])",
            "ATen's product, reordered",
        ),
        CatalogueRow(
            "sequential",
            f"{prefix}_sequential",
            "rank-one updates one by one, product and sum rounded separately; up to k = 4096, slow",
            "s = 0; s = s + round(a[:,k] * b[k,:]), k = 0, 1, ...",
            "the definition",
        ),
        CatalogueRow(
            "bf16",
            f"{prefix}_bf16",
            "inputs rounded to bfloat16, accumulated in float32",
            "mm(bf16(a), bf16(b)) in float32",
            "what bfloat16 matrix units compute",
        ),
        CatalogueRow(
            "tf32",
            f"{prefix}_tf32",
            "inputs rounded to 11 significant bits as in TF32, accumulated in float32",
            "mm(t(a), t(b)), t(x) = c-(c-x), c = (2^13+1)*x",
            VELTKAMP,
        ),
    )


def _register_linear(registry: KernelRegistry) -> None:
    op = "linear"
    rows = (
        CatalogueRow(
            "decomposed",
            "decomposed",
            "t, mm and add as operations of their own",
            "add(mm(x, t(W)), b)",
            "ATen/native/Linear.cpp, without its fused addmm",
        ),
        CatalogueRow(
            "whole",
            "whole",
            "one operation for autograd, with the textbook's backward",
            "linear(x, W, b); backward g @ W, g^T @ x, sum(g)",
            "the definition",
        ),
        CatalogueRow(
            "split_k",
            "split_k",
            "the inner dimension in 4 parts, their products added first to last, then the bias",
            "((x1 @ W1^T + x2 @ W2^T) + x3 @ W3^T) + x4 @ W4^T + b",
            "split-K as in CUTLASS",
        ),
        CatalogueRow(
            "bf16",
            "bf16",
            "computed in bfloat16, so are the gradients",
            "linear(bf16(x), bf16(W), bf16(b))",
            "torch.autocast",
        ),
        CatalogueRow(
            "fp64",
            "fp64",
            "computed in float64 and rounded once, so are the gradients",
            "round(linear(double(x), double(W), double(b)))",
            "the op itself",
        ),
    )
    registry.register(Operation(op, FAMILY, "x @ W^T + b, above autograd"), records(op, "linear", rows))
