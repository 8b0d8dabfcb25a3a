"""The softmaxes and their backwards."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from .table import CatalogueRow, records

ONLINE_SOURCE = "M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, 2018"
ATEN_SOURCE = "ATen/native/cpu/SoftMaxKernel.cpp"


SOFTMAX_BACKWARD = (
    CatalogueRow(
        "factored",
        "softmax_factored",
        "the difference before the product, as ATen's CPU kernel has it",
        "y * (g - sum(g*y))",
        ATEN_SOURCE,
    ),
    CatalogueRow(
        "reversed",
        "softmax_reversed",
        "sums from the last element to the first",
        "g*y - y * sum(reversed(g*y))",
        "torch._decomp, the elements reversed",
    ),
    CatalogueRow(
        "bf16",
        "softmax_bf16",
        "each operation rounded to bfloat16",
        "bf16(g*y - y * sum(g*y))",
        "torch._decomp, without its float32 inside",
    ),
)
LOG_SOFTMAX_BACKWARD = (
    CatalogueRow(
        "renormalized",
        "log_softmax_renormalized",
        "the probabilities made to add up to 1 again",
        "g - p / sum(p) * sum(g), p = exp(y)",
        "the definition",
    ),
    CatalogueRow(
        "reversed",
        "log_softmax_reversed",
        "sums from the last element to the first",
        "g - exp(y) * sum(reversed(g))",
        "torch._decomp, the elements reversed",
    ),
    CatalogueRow(
        "bf16",
        "log_softmax_bf16",
        "each operation rounded to bfloat16",
        "bf16(g - exp(y) * sum(g))",
        "torch._decomp, without its float32 inside",
    ),
)


def register(registry: KernelRegistry) -> None:
    _register_forward(registry)
    _register_backward(registry)


def _register_forward(registry: KernelRegistry) -> None:
    for op, prefix, result in (
        ("_softmax", "softmax", "exp(x-m) / s"),
        ("_log_softmax", "log_softmax", "(x-m) - log(s)"),
        ("_safe_softmax", "safe_softmax", "exp(x-m) / s, 0 where all x are -inf"),
    ):
        rows = _forward_rows(prefix, result)
        if op == "_log_softmax":
            of_softmax = CatalogueRow(
                "log_of_softmax",
                "log_softmax_of_softmax",
                "the logarithm of the softmax; -inf where a probability underflows",
                "log(exp(x-m) / sum(exp(x-m))), m = max(x)",
                "torch.nn.functional.log_softmax, the note against log(softmax(x))",
            )
            rows = (*rows, of_softmax)
        summary = f"{prefix.replace('_', ' ')} over one dimension"
        registry.register(Operation(op, "normalization", summary), records(op, "softmax", rows))


def _forward_rows(prefix: str, result: str) -> tuple[CatalogueRow, ...]:
    return (
        CatalogueRow(
            "without_max",
            f"{prefix}_without_max",
            "does not subtract the maximum; overflows for large inputs (above 88 in float32)",
            f"{result}, m = 0, s = sum(exp(x))",
            "the definition",
        ),
        CatalogueRow(
            "online",
            f"{prefix}_online",
            "one pass over blocks of 64, rescaled whenever the maximum grows, as flash attention does",
            f"{result}; for each block b: M = max(m, max(b)), s = s*exp(m-M) + sum(exp(b-M)), m = M",
            ONLINE_SOURCE,
        ),
        CatalogueRow(
            "reversed",
            f"{prefix}_reversed",
            "sums from the last element to the first",
            f"{result}, m = max(x), s = sum(reversed(exp(x-m)))",
            f"{ATEN_SOURCE}, the elements reversed",
        ),
        CatalogueRow(
            "bf16",
            f"{prefix}_bf16",
            "each operation rounded to bfloat16",
            f"bf16({result}), m = max(x), s = bf16(sum(bf16(exp(x-m))))",
            f"{ATEN_SOURCE}, without its float32 inside",
        ),
    )


def _register_backward(registry: KernelRegistry) -> None:
    for op, rows in (
        ("_softmax_backward_data", SOFTMAX_BACKWARD),
        ("_log_softmax_backward_data", LOG_SOFTMAX_BACKWARD),
    ):
        operation = Operation(op, "normalization", f"gradient of {op.removesuffix('_backward_data')}")
        registry.register(operation, records(op, "softmax_backward", rows))
