"""The rows of the catalogue, and their conversion to records of kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..registry import ANY_DEVICE, FLOATING, Kernel

IMPLEMENTATIONS = "numdrift.kernels.implementations"


@dataclass(frozen=True, slots=True)
class CatalogueRow:
    """One kernel, and the texts that users read about it.

    `function` is set if it differs from the kernel's name; `module:function` names one in another module. `of_torch`
    marks the decomposition that torch ships.
    """

    name: str
    description: str
    formula: str
    source: str
    function: str = ""
    native: bool = False
    of_torch: bool = False
    dtypes: tuple[str, ...] = FLOATING
    devices: tuple[str, ...] = ANY_DEVICE


def records(
    op: str, module: str, rows: Iterable[CatalogueRow], *, prefix: str = "", of_any_op: bool = False
) -> list[Kernel]:
    """Return the kernels of `op`: functions in `kernels/implementations/<module>.py` whose names begin with
    `prefix`."""
    made = []
    for row in rows:
        target = f"{IMPLEMENTATIONS}.{module}:{prefix}{row.function or row.name}"
        if row.of_torch:
            target = "numdrift.kernels.generic:decomposed"
        elif ":" in row.function:
            target = f"{IMPLEMENTATIONS}.{row.function}"
        made.append(
            Kernel(
                op=op,
                name=row.name,
                description=row.description,
                formula=row.formula,
                target=target,
                source=row.source,
                dtypes=row.dtypes,
                devices=row.devices,
                native=row.native,
                of_any_op=of_any_op or row.of_torch,
            )
        )
    return made


def decomposition(formula: str, source: str) -> CatalogueRow:
    """Return the decomposition that torch ships, with its formula spelled out."""
    what = "torch's decomposition, op by op; the half formats in float32"
    return CatalogueRow("decomposed", what, formula, source, of_torch=True)
