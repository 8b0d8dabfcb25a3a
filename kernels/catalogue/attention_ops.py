"""Attention: the composite op that scripts call, and the CPU's blockwise op that graphs hold."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from .table import CatalogueRow, records

FAMILY = "product"
FLASH = "T. Dao, FlashAttention-2, 2023"


COMPOSITE = (
    CatalogueRow(
        "math",
        "math_form",
        "products and a softmax over whole rows; query and key each scaled by sqrt(scale)",
        "softmax((q*sqrt(scale)) @ (k*sqrt(scale))^T + mask) @ v",
        "aten._scaled_dot_product_attention_math",
    ),
    CatalogueRow(
        "flash",
        "flash",
        "blockwise with a running maximum, on the CPU; no dropout, no gradient of the mask",
        "the online softmax over blocks of keys",
        "aten._scaled_dot_product_flash_attention_for_cpu",
        devices=("cpu",),
    ),
    CatalogueRow(
        "decomposed",
        "decomposed",
        "matmul, scaling, mask, softmax and matmul as operations of their own",
        "softmax((q @ k^T) * scale + mask) @ v",
        "A. Vaswani et al., Attention Is All You Need, 2017, equation 1",
    ),
    CatalogueRow(
        "bf16",
        "bf16",
        "the math form computed in bfloat16, so are the gradients",
        "math(bf16(q), bf16(k), bf16(v))",
        "torch.autocast",
    ),
    CatalogueRow(
        "fp64",
        "fp64",
        "the math form in float64, rounded once, so are the gradients; refuses dropout",
        "round(math(double(q), double(k), double(v)))",
        "aten._scaled_dot_product_attention_math",
    ),
)
BLOCKWISE = (
    CatalogueRow(
        "decomposed",
        "decomposed",
        "products and a softmax over whole rows",
        "softmax((q @ k^T) * scale + mask) @ v, and the softmax's log-sum-exp",
        "A. Vaswani et al., Attention Is All You Need, 2017, equation 1",
    ),
    CatalogueRow(
        "online",
        "online",
        "blocks of 64 keys; sum and result are rescaled whenever the maximum grows",
        "M = max(m, max(b)); s = s*exp(m-M) + sum(exp(b-M)); o = o*exp(m-M) + exp(b-M) @ v_b; o / s",
        f"{FLASH}, algorithm 1",
    ),
    CatalogueRow(
        "bf16",
        "bf16",
        "over whole rows, each operation rounded to bfloat16",
        "bf16(softmax((q @ k^T) * scale + mask) @ v)",
        "as decomposed",
    ),
    CatalogueRow(
        "fp64",
        "fp64",
        "over whole rows in float64, rounded once",
        "round(softmax((double(q) @ double(k)^T) * scale + mask) @ double(v))",
        "as decomposed",
    ),
)
BLOCKWISE_BACKWARD = (
    CatalogueRow(
        "decomposed",
        "backward_decomposed",
        "over whole rows",
        "P = exp(scores - lse); dS = P * (g @ v^T - sum(g*out)) * scale; dS @ k, dS^T @ q, P^T @ g",
        f"{FLASH}, algorithm 2 without blocks",
    ),
    CatalogueRow(
        "bf16",
        "backward_bf16",
        "over whole rows, each operation rounded to bfloat16",
        "as decomposed, in bfloat16",
        "as decomposed",
    ),
    CatalogueRow(
        "reversed",
        "backward_reversed",
        "over whole rows, sums over queries and keys from last to first",
        "as decomposed, the products' inner dimensions reversed",
        "as decomposed",
    ),
)


def register(registry: KernelRegistry) -> None:
    op = "scaled_dot_product_attention"
    reference = f"numdrift.kernels.references.sum_references:{op}"
    operation = Operation(op, FAMILY, "attention, above autograd", reference)
    registry.register(operation, records(op, "attention", COMPOSITE))
    op = "_scaled_dot_product_flash_attention_for_cpu"
    summary = "attention on the CPU, with the log-sum-exp that its backward needs"
    registry.register(Operation(op, FAMILY, summary), records(op, "flash_attention", BLOCKWISE))
    op = f"{op}_backward"
    operation = Operation(op, FAMILY, "gradients of attention on the CPU")
    registry.register(operation, records(op, "flash_attention", BLOCKWISE_BACKWARD))
