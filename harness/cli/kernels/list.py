"""`numdrift kernels list`: the ops that have kernels, and the kernels of one op."""

from __future__ import annotations

from dataclasses import asdict

import click

from numdrift.kernels.registry import FLOATING, Kernel, built_in, load_target

from ..command_options import json_option
from ..output import console, table, write_json
from .parameters import complete_op, named_op

AVAILABILITY = "numdrift.kernels.lab.trial"
"""The module that knows which kernels are available. It imports torch, which a list of the ops does not need."""

EVERY_OTHER = (
    "Every other aten op has the kernels aten, fp64 (unless it draws random numbers), decomposed (where torch ships "
    "a decomposition) and inductor."
)

EXAMPLES = """\b
Examples:
  numdrift kernels list
  numdrift kernels list tanh_backward
  numdrift kernels list cumsum --json -
"""


@click.command(
    epilog=EXAMPLES,
    help="List the ops that numdrift has kernels for, or every kernel of OP, which may be any aten op.",
)
@click.argument("op", required=False, callback=named_op, shell_complete=complete_op)
@json_option
def command(op: str | None, json_path: str | None) -> int:
    registry, out = built_in(), console()
    if op is None:
        if json_path:
            operations = [
                {**asdict(operation), "kernels": [_record(kernel) for kernel in registry.kernels(operation.name)]}
                for operation in registry.operations()
            ]
            write_json(json_path, {"schema": 1, "operations": operations})
        if json_path != "-":
            rows = table("op", "family", ">kernels", "names", "summary")
            for operation in registry.operations():
                names = [kernel.name for kernel in registry.kernels(operation.name)]
                rows.add_row(operation.name, operation.family, str(len(names)), ", ".join(names), operation.summary)
            out.print(rows)
            out.print(f"\n{EVERY_OTHER}", soft_wrap=True)
        return 0
    # from here on torch is imported, to find out what this machine supports
    why_not = load_target(f"{AVAILABILITY}:why_not")
    operation, kernels = registry.operation(op), registry.kernels(op)
    missing = {kernel.name: why_not(kernel) for kernel in kernels}
    status = load_target(f"{AVAILABILITY}:native_status")()
    if json_path:
        records = [{**_record(kernel), "not_available": missing[kernel.name] or None} for kernel in kernels]
        write_json(json_path, {"schema": 1, **asdict(operation), "kernels": records, "native": status})
    if json_path != "-":
        rows = table("kernel", "description", "formula", "dtypes", "devices", "source", "available here")
        for kernel in kernels:
            dtypes = "any" if kernel.dtypes == FLOATING else " ".join(kernel.dtypes)
            # an empty reason means that the kernel is available
            availability = f"no: {missing[kernel.name]}" if missing[kernel.name] else "yes"
            rows.add_row(
                kernel.name,
                kernel.description,
                kernel.formula,
                dtypes,
                " ".join(kernel.devices),
                kernel.source,
                availability,
            )
        out.print(f"{op}: {operation.summary} ({operation.family})\n")
        out.print(rows)
        out.print(f"\nKernels in C are computed by {status}.")
    return 0


def _record(kernel: Kernel) -> dict[str, object]:
    return {
        "name": kernel.name,
        "description": kernel.description,
        "formula": kernel.formula,
        "dtypes": list(kernel.dtypes),
        "devices": list(kernel.devices),
        "source": kernel.source,
        "native": kernel.native,
        "needs_compiler": kernel.needs_compiler,
    }
