"""Sums and means."""

from __future__ import annotations

from ..registry import KernelRegistry, Operation
from .table import CatalogueRow, records


def register(registry: KernelRegistry) -> None:
    for op in ("sum", "mean"):
        operation = Operation(
            name=op,
            family="reduction",
            summary=f"{op} of all elements or over some dimensions",
            reference=f"numdrift.kernels.references.sum_references:{op}",
        )
        registry.register(operation, records(op, "sums", _rows(op)))


def _rows(op: str) -> tuple[CatalogueRow, ...]:
    end = "; divided by n" if op == "mean" else ""
    return (
        CatalogueRow(
            "sequential",
            f"{op}_sequential",
            "one element after the other; above 4096 elements a C compiler is needed",
            f"s = 0; s = s + x[i], i = 0, 1, ...{end}",
            "the definition",
            native=True,
        ),
        CatalogueRow(
            "pairwise",
            f"{op}_pairwise",
            "halves added, down to single elements",
            f"S(x) = S(x[:n//2]) + S(x[n//2:]){end}",
            "N. Higham, The Accuracy of Floating Point Summation, SIAM J. Sci. Comput. 14(4), 1993",
            native=True,
        ),
        CatalogueRow(
            "kahan",
            f"{op}_kahan",
            "what each addition loses goes into the next; above 4096 elements a C compiler is needed",
            f"y = x[i]-c; t = s+y; c = (t-s)-y; s = t{end}",
            "W. Kahan, Further Remarks on Reducing Truncation Errors, CACM 8(1), 1965",
            native=True,
        ),
        CatalogueRow(
            "reversed",
            f"{op}_reversed",
            "ATen's sum of the elements from last to first",
            f"aten.sum(reversed(x)){end}",
            "ATen/native/cpu/SumKernel.cpp, the elements reversed",
        ),
        CatalogueRow(
            "bf16",
            f"{op}_bf16",
            "the pairwise sum, each addition rounded to bfloat16",
            f"S(x) = bf16(S(x[:n//2]) + S(x[n//2:])){end}",
            "as pairwise",
        ),
    )
