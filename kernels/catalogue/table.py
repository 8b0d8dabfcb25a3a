"""The records of one op's kernels, from a table of what differs between them."""

from __future__ import annotations

from dataclasses import dataclass

from ..registry import ANY_DEVICE, FLOATING, Kernel


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One kernel: its name, its function in the table's module, and what the user reads about it."""

    name: str
    function: str
    description: str
    formula: str
    source: str
    native: bool = False
    devices: tuple[str, ...] = ANY_DEVICE


def records(
    op: str,
    module: str,
    rows: tuple[CatalogueRow, ...],
    *,
    dtypes: tuple[str, ...] = FLOATING,
    of_any_op: bool = False,
) -> list[Kernel]:
    """The kernels of `op`, with their functions in `kernels/implementations/<module>.py`."""
    return [
        Kernel(
            op=op,
            name=row.name,
            description=row.description,
            formula=row.formula,
            target=f"numdrift.kernels.implementations.{module}:{row.function}",
            source=row.source,
            dtypes=dtypes,
            devices=row.devices,
            native=row.native,
            of_any_op=of_any_op,
        )
        for row in rows
    ]


# The record of torch's own decomposition, with its formula spelled out.


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
