"""The record of torch's own decomposition, with its formula spelled out."""

from __future__ import annotations

from ..registry import Kernel


def decomposition(op: str, formula: str, source: str) -> Kernel:
    """Record the decomposition that torch ships for `op`; it computes the half formats in float32."""
    return Kernel(
        op,
        "decomposed",
        "torch's decomposition, op by op; the half formats in float32",
        formula,
        "numdrift.kernels.generic:decomposed",
        source,
        of_any_op=True,
    )
