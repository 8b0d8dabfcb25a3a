"""The rows of the catalogue, and their conversion to records of ops and kernels.

The tables are laid out by hand: the first line of a row is the kernel's name and description, and its formula and
source follow below.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..registry import ANY_DEVICE, FLOATING, Kernel, Operation

IMPLEMENTATIONS = "numdrift.kernels.implementations"


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel, and the texts that users read about it.

    `function` is the name of the kernel's function, without the op's prefix, if it differs from the kernel's name;
    `module:function` names a function in another module. `of_torch` marks the decomposition that torch ships.
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


@dataclass(frozen=True, slots=True)
class OpKernels:
    """One op and its kernels: functions in `kernels/implementations/<module>.py` whose names begin with `prefix`.

    `of_any_op` says that these functions take the op's name as their first argument.
    """

    operation: Operation
    module: str
    rows: tuple[Row, ...]
    prefix: str = ""
    of_any_op: bool = False

    def kernels(self) -> list[Kernel]:
        return [
            Kernel(
                op=self.operation.name,
                name=row.name,
                description=row.description,
                formula=row.formula,
                target=self._target(row),
                source=row.source,
                dtypes=row.dtypes,
                devices=row.devices,
                native=row.native,
                of_any_op=self.of_any_op or row.of_torch,
            )
            for row in self.rows
        ]

    def _target(self, row: Row) -> str:
        if row.of_torch:
            return "numdrift.kernels.generic:decomposed"
        if ":" in row.function:
            return f"{IMPLEMENTATIONS}.{row.function}"
        return f"{IMPLEMENTATIONS}.{self.module}:{self.prefix}{row.function or row.name}"


def decomposition(formula: str, source: str) -> Row:
    """Return the decomposition that torch ships, with its formula spelled out."""
    what = "torch's decomposition; float16 and bfloat16 are computed in float32"
    return Row("decomposed", what, formula, source, of_torch=True)
